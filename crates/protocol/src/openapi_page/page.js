"use strict";
{
  const input = document.getElementById("words"), found = document.getElementById("found");
  const operations = Array.from(document.querySelectorAll("main details"), (details) => ({
    details,
    entry: document.querySelector(`nav a[href="#${details.id}"]`).parentElement,
    words: details.textContent.toLowerCase(),
    name: details.querySelector("summary").textContent.toLowerCase(),
  }));
  document.getElementById("search").hidden = false;

  // Names first: a word that stands in a name of an operation is not looked for in all texts.
  function search() {
    const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (key) => operations.filter((one) => wanted.every((word) => one[key].includes(word)));
    const named = fits("name"), shown = new Set(named.length > 0 ? named : fits("words"));
    for (const one of operations) {
      one.details.hidden = one.entry.hidden = !shown.has(one);
    }
    for (const part of document.querySelectorAll("main section:not(#forms)")) {
      const isEmpty = !part.querySelector("details:not([hidden])");
      part.hidden = isEmpty;
      document.querySelector(`nav a[href="#${part.id}"]`).parentElement.hidden = isEmpty;
    }
    found.textContent = wanted.length > 0 ? `${shown.size} of ${operations.length} operations` : `${operations.length} operations`;
  }

  function openNamed() {
    const named = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (named && named.tagName === "DETAILS") {
      named.open = true;
    }
  }

  for (const example of document.querySelectorAll("main pre code")) {
    example.textContent = example.textContent.replace(/https:\/\/HOST:\w+/, location.origin);
  }
  input.addEventListener("input", search);
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && event.target !== input) {
      event.preventDefault();
      input.focus();
    }
  });
  addEventListener("hashchange", openNamed);
  search();
  openNamed();
}
