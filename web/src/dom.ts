// The page is made of elements and text, never of markup: whatever a remote server wrote into an error
// message stays text. Lists keep their nodes from second to second, so that focus and hover survive an
// update.

type Child = Node | string;

/** An element with a class and children. */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  name = "",
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  if (name !== "") node.className = name;
  node.append(...children);
  return node;
}

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element with attributes. */
export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Record<string, string | number> = {},
): SVGElementTagNameMap[K] {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  return node;
}

/** An element that `index.html` has. */
export function byId(id: string): HTMLElement {
  const node = document.getElementById(id);
  if (node === null) throw new Error(`index.html has no element '${id}'`);
  return node;
}

/** Changes text only when it differs, so that a selection in it survives. */
export function setText(node: Element, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}

/** A node that shows one item of a list. */
export interface View<T> {
  node: HTMLElement;
  show(item: T): void;
}

const views = new WeakMap<HTMLElement, Map<string, View<never>>>();

/** Shows `items` inside `parent`, one node per key, in order; nodes of keys that were there are kept. */
export function showList<T>(
  parent: HTMLElement,
  items: T[],
  key: (item: T) => string,
  create: () => View<T>,
): void {
  const before = (views.get(parent) ?? new Map()) as Map<string, View<T>>;
  const after = new Map<string, View<T>>();
  let cursor: ChildNode | null = parent.firstChild;
  for (const item of items) {
    const id = key(item);
    if (after.has(id)) continue;
    const view = before.get(id) ?? create();
    view.show(item);
    after.set(id, view);
    if (view.node === cursor) cursor = cursor.nextSibling;
    else parent.insertBefore(view.node, cursor);
  }
  for (const [id, view] of before) if (!after.has(id)) view.node.remove();
  views.set(parent, after as unknown as Map<string, View<never>>);
}

/** A bar of `value` in `limit`; says the same to a screen reader. */
export function meter(label: string): { node: HTMLElement; show(value: number, limit: number): void } {
  const fill = el("span", "fill");
  const node = el("span", "meter", fill);
  node.setAttribute("role", "meter");
  node.setAttribute("aria-label", label);
  node.setAttribute("aria-valuemin", "0");
  return {
    node,
    show(value, limit) {
      const share = limit > 0 ? Math.min(value / limit, 1) : 0;
      fill.style.width = `${(share * 100).toFixed(1)}%`;
      node.classList.toggle("full", limit > 0 && value >= limit);
      node.setAttribute("aria-valuemax", String(limit));
      node.setAttribute("aria-valuenow", String(value));
    },
  };
}
