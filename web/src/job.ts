// "What about my job?": asks the service to explain a job, and shows its words.

import { explain, NoAnswer } from "./api.ts";
import { byId, el } from "./dom.ts";
import { plural } from "./format.ts";
import type { JobExplanation } from "./types.ts";

const FILES_MAX = 200;

export function startJobForm(): { ask(job: string): void } {
  const form = byId("job-form") as HTMLFormElement;
  const input = byId("job") as HTMLInputElement;
  const answer = byId("job-answer");
  let latest = 0;
  const ask = async (job: string): Promise<void> => {
    latest += 1;
    const mine = latest;
    answer.replaceChildren(el("p", "hint", "asking …"));
    const shown = await explain(job).then(explanation, (why: unknown) => [refusal(job, why)]);
    if (mine === latest) answer.replaceChildren(...shown);
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const job = input.value.trim();
    if (job !== "") void ask(job);
  });
  return {
    ask(job) {
      input.value = job;
      void ask(job);
    },
  };
}

function refusal(job: string, why: unknown): HTMLElement {
  if (why instanceof NoAnswer && why.status === 404)
    return el(
      "p",
      "bad",
      `There is no job ${job}: look for a typing error, or ask the service it was submitted to.`,
    );
  return el("p", "bad", why instanceof Error ? why.message : "no answer");
}

function explanation(told: JobExplanation): HTMLElement[] {
  const state = el(
    "p",
    "",
    "The job is ",
    el("b", `state ${told.job_state.toLowerCase()}`, told.job_state),
    ".",
  );
  const lines = told.lines.map((line) => el("p", "", line));
  const files = told.files
    .slice(0, FILES_MAX)
    .map((file) =>
      el(
        "li",
        "",
        el("span", `state ${file.state.toLowerCase()}`, file.state),
        el("span", "grow", file.text),
        el("span", "hint", `file ${file.file_id}`),
      ),
    );
  const list = el("ul", "plain files", ...files);
  const more = told.files.length - FILES_MAX;
  return [state, ...lines, list, ...(more > 0 ? [el("p", "hint", `and ${plural(more, "more file")}`)] : [])];
}
