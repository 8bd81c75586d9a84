// A job as the service explains it, in its words.

import { el } from "./dom.ts";
import { plural } from "./format.ts";
import type { JobExplanation } from "./types.ts";

const FILES_MAX = 200;

export function explanation(told: JobExplanation): HTMLElement[] {
  const state = el(
    "p",
    "",
    "The job is ",
    el("b", `state ${told.job_state.toLowerCase()}`, told.job_state),
    ".",
  );
  const lines = told.lines.map((line) => el("p", "", line));
  const files = told.files.slice(0, FILES_MAX).map((file) => {
    const story = el("a", "", `file ${file.file_id}`);
    story.href = `#/transfer/${file.file_id}`;
    return el(
      "li",
      "",
      el("span", `state ${file.state.toLowerCase()}`, file.state),
      el("span", "grow", file.text),
      story,
    );
  });
  const list = el("ul", "plain files", ...files);
  const more = told.files.length - FILES_MAX;
  return [state, ...lines, list, ...(more > 0 ? [el("p", "hint", `and ${plural(more, "more file")}`)] : [])];
}
