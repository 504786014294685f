"""The judge: rules over facts give findings, and what could not be checked."""
