// Questions to the reader, as modal dialogs: keyboard, focus and escape are the browser's own.

import { el } from "../dom.ts";

export interface Field {
  label: string;
  input: HTMLInputElement | HTMLSelectElement;
}

/** Shows a dialog until it is answered. `act` runs on its main button; what it throws is shown and can be corrected. */
export function ask(
  title: string,
  content: Node[],
  action: string,
  act: () => Promise<void>,
  style = "",
): Promise<boolean> {
  return new Promise((answer) => {
    const dialog = el("dialog", "card");
    const heading = el("h2", "", title);
    heading.id = "dialog-title";
    dialog.setAttribute("aria-labelledby", heading.id);
    const problem = el("p", "bad");
    problem.setAttribute("role", "alert");
    problem.hidden = true;
    const yes = el("button", style, action);
    const no = el("button", "quiet", "cancel");
    no.type = "button";
    no.addEventListener("click", () => dialog.close());
    const form = el("form", "", heading, ...content, problem, el("p", "actions", yes, no));
    form.method = "dialog";
    form.autocomplete = "off";
    let done = false;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      yes.disabled = true;
      problem.hidden = true;
      try {
        await act();
        done = true;
        dialog.close();
      } catch (error) {
        problem.textContent = error instanceof Error ? error.message : String(error);
        problem.hidden = false;
        yes.disabled = false;
      }
    });
    dialog.append(form);
    dialog.addEventListener("close", () => {
      dialog.remove();
      answer(done);
    });
    document.body.append(dialog);
    dialog.showModal();
    const first = form.querySelector<HTMLInputElement>("input, select");
    first?.focus();
    if (first instanceof HTMLInputElement && first.type === "text") first.select();
  });
}

/** A list of things that can be done; the chosen one runs after the dialog is closed. */
export function choose(title: string, choices: { name: string; style?: string; run: () => void }[]): void {
  const dialog = el("dialog", "card menu");
  const heading = el("h2", "", el("bdi", "", title));
  heading.id = "dialog-title";
  dialog.setAttribute("aria-labelledby", heading.id);
  const list = el("ul", "choices");
  for (const choice of choices) {
    const button = el("button", `plain-button ${choice.style ?? ""}`.trim(), choice.name);
    button.type = "button";
    button.addEventListener("click", () => {
      dialog.close();
      choice.run();
    });
    list.append(el("li", "", button));
  }
  const no = el("button", "quiet", "close");
  no.type = "button";
  no.addEventListener("click", () => dialog.close());
  dialog.append(heading, list, no);
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/** A labelled field. */
export function labelled(label: string, input: HTMLInputElement | HTMLSelectElement): HTMLLabelElement {
  return el("label", "field", el("span", "", label), input);
}

export function textInput(value: string, type = "text"): HTMLInputElement {
  const input = el("input");
  input.type = type;
  input.value = value;
  input.required = true;
  input.spellcheck = false;
  input.autocomplete = "off";
  return input;
}

/** Says something that needs no answer. */
export function notify(text: string, bad = false): void {
  let notice = document.getElementById("notice");
  if (notice === null) {
    notice = el("p", "notice");
    notice.id = "notice";
    notice.setAttribute("role", "status");
    document.body.append(notice);
  }
  notice.textContent = text;
  notice.classList.toggle("bad", bad);
  notice.hidden = false;
  const shown = notice;
  setTimeout(() => {
    if (shown.textContent === text) shown.hidden = true;
  }, 6000);
}
