"use strict";
const form = document.querySelector("form");
const [query, severity, subject] = form.elements;
const rules = [...document.querySelectorAll("#rules > li")];
const texts = new Map(rules.map((rule) => [rule, rule.textContent.toLowerCase()]));

function search() {
  const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
  let found = 0;
  for (const rule of rules) {
    const fits = words.every((word) => texts.get(rule).includes(word))
      && (!severity.value || rule.classList.contains(severity.value))
      && (!subject.value || rule.dataset.subject === subject.value);
    rule.hidden = !fits;
    found += fits;
  }
  form.querySelector("output").textContent = `${found} of ${rules.length} rules`;
}

function openNamed() {
  const rule = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (rule && texts.has(rule)) {
    form.reset();
    search();
    rule.querySelector("details").open = true;
    rule.scrollIntoView();
  }
}

form.hidden = false;
form.addEventListener("input", search);
form.addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== query) {
    event.preventDefault();
    query.focus();
  } else if (event.key === "Escape" && document.activeElement === query) {
    query.value = "";
    search();
  }
});
window.addEventListener("hashchange", openNamed);
search();
openNamed();
