// Functions that page_checks.py calls in a page. What is wrong comes back as lines of text.

const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const seen = (element) =>
  element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
const brief = (text) => JSON.stringify(text.trim().replace(/\s+/g, " ").slice(0, 40));

// A name for an element that tells it from others: "main", "a.skip", "div.scroll[2]"
function nameOf(element) {
  const plain = (element.localName + "." + (element.getAttribute("class") || ""))
    .trim().replace(/\s+/g, ".").replace(/\.$/, "");
  const alike = all(element.localName);
  return alike.length > 1 && plain !== "a.skip" ? `${plain}[${alike.indexOf(element)}]` : plain;
}

function openAll() {
  all("details").forEach((each) => { each.open = true; });
}

function structure() {
  const wrong = [];
  const one = { "h1": 1, "main": 1, "head > title": 1, "html[lang]": 1, "meta[name=viewport]": 1 };
  for (const [selector, n] of Object.entries(one))
    if (all(selector).length !== n) wrong.push(`${all(selector).length} of ${selector}`);
  if (!document.title.trim()) wrong.push("an empty title");
  const policy = document.querySelector("meta[http-equiv=Content-Security-Policy]")?.content || "";
  if (!policy.includes("default-src 'none'")) wrong.push(`content policy ${brief(policy)}`);
  for (const each of all("script, link, img, iframe, object, embed, form, base, audio, video"))
    wrong.push(`active or loaded content: ${each.localName}`);
  for (const each of all("*"))
    for (const { name, value } of each.attributes) {
      if (name.startsWith("on")) wrong.push(`${nameOf(each)} has ${name}`);
      if (name.endsWith("href") && !document.getElementById(value.slice(1)))
        wrong.push(`${nameOf(each)} leads to ${brief(value)}`);
    }
  const ids = all("[id]").map((each) => each.id);
  if (new Set(ids).size !== ids.length) wrong.push(`ids twice: ${ids}`);
  let level = 0;
  for (const each of all("h1, h2, h3, h4, h5, h6")) {
    const next = Number(each.localName[1]);
    if (next > level + 1)
      wrong.push(`${each.localName} ${brief(each.textContent)} below h${level}`);
    if (!each.textContent.trim()) wrong.push(`an empty ${each.localName}`);
    level = next;
  }
  return wrong;
}

// What is said of a picture: in its caption, or below its section's heading
function sentenceOf(picture) {
  const caption = picture.closest("figure")?.querySelector("figcaption");
  if (caption) return caption.textContent.trim();
  let part = picture.closest("main > *");
  while (part && part.localName !== "h2") {
    if (part.matches(".says")) return part.textContent.trim();
    part = part.previousElementSibling;
  }
  return "";
}

function figures() {
  const wrong = [];
  const pictures = all("svg[role=img]");
  if (!pictures.length) wrong.push("no picture");
  for (const each of all("svg"))
    if (!pictures.includes(each) && each.getAttribute("aria-hidden") !== "true")
      wrong.push(`${nameOf(each)} is neither a picture nor hidden from readers`);
  for (const picture of pictures) {
    const name = picture.querySelector(":scope > title")?.textContent.trim();
    const called = `${nameOf(picture)} ${brief(name || "")}`;
    if (!name) wrong.push(`${called} has no title`);
    if (!picture.querySelector(":scope > desc")?.textContent.trim())
      wrong.push(`${called} has no description`);
    if (!sentenceOf(picture)) wrong.push(`${called} has no sentence beside it`);
    const frame = picture.getBoundingClientRect();
    if (!seen(picture) || frame.width < 40 || frame.height < 20)
      wrong.push(`${called} is not seen: ${frame.width} x ${frame.height}`);
    const shapes = all("path, rect, circle, use", picture).map((each) => each.getBoundingClientRect());
    if (!shapes.some((box) => box.width > 0 || box.height > 0)) wrong.push(`${called} is empty`);
    const words = all("text", picture).map((each) => [each, each.getBoundingClientRect()]);
    for (const [each, box] of words)
      if (box.left < frame.left - 1 || box.right > frame.right + 1 ||
          box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        wrong.push(`${called} cuts off ${brief(each.textContent)}`);
    const marks = all("rect, circle, use", picture).map((each) => each.getBoundingClientRect());
    for (const [each, p] of words)
      if (marks.some((q) => Math.min(p.right, q.right) - Math.max(p.left, q.left) > 1 &&
                            Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 3))
        wrong.push(`${called}: ${brief(each.textContent)} lies on a mark`);
    // boxes of text have room above and below the letters
    words.forEach(([a, p], i) => words.slice(i + 1).forEach(([b, q]) => {
      const across = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (across > 1 && down > 0.4 * Math.min(p.height, q.height, p.width, q.width))
        wrong.push(`${called}: ${brief(a.textContent)} lies on ${brief(b.textContent)}`);
    }));
  }
  return wrong;
}

function tooWide() {
  const page = document.scrollingElement;
  if (page.scrollWidth <= page.clientWidth) return [];
  const outer = all("body *").filter(
    (each) => each.getBoundingClientRect().right > page.clientWidth + 1 && !each.closest(".scroll"),
  );
  return [`${page.scrollWidth} wide: ${outer.slice(0, 5).map(nameOf)}`];
}

// ---- colours ----

function rgba(text) {
  const numbers = (text.match(/[\d.]+/g) || []).map(Number);
  if (!text.startsWith("rgb")) return [0, 0, 0, 0]; // none, transparent
  return [numbers[0], numbers[1], numbers[2], numbers[3] ?? 1];
}

const over = (top, below) =>
  [0, 1, 2].map((i) => top[3] * top[i] + (1 - top[3]) * below[i]).concat(1);

function luminance(colour) {
  const [r, g, b] = colour.slice(0, 3).map((each) => {
    const share = each / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function brightness() {
  const style = getComputedStyle(document.body);
  return { page: luminance(rgba(style.backgroundColor)), text: luminance(rgba(style.color)) };
}

function paint(element) {
  const style = getComputedStyle(element);
  if (!(element instanceof SVGElement)) return rgba(style.backgroundColor);
  if (["svg", "g", "text", "tspan"].includes(element.localName)) return [0, 0, 0, 0];
  const colour = rgba(style.fill);
  return [...colour.slice(0, 3), colour[3] * Number(style.fillOpacity) * Number(style.opacity)];
}

// The colour behind a point of an element: all that is below it there, blended
function behind(element, x, y) {
  const stack = document.elementsFromPoint(x, y);
  const ancestors = [];
  for (let each = element; each; each = each.parentElement) ancestors.push(each);
  const place = stack.indexOf(element);
  const layers = place < 0 ? ancestors : stack.slice(place);
  const canvas = paint(document.body);
  return layers.map(paint).reverse().reduce((below, top) => over(top, below), canvas);
}

function faint(least) {
  const wrong = new Set();
  let n = 0;
  const shown = (each) =>
    each ? Number(getComputedStyle(each).opacity) * shown(each.parentElement) : 1;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement;
    const unseen = element.closest("title, desc") || !seen(element);
    if (!node.textContent.trim() || unseen) continue;
    n += 1;
    const range = document.createRange();
    range.selectNodeContents(node);
    element.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
    const box = range.getClientRects()[0];
    if (!box) continue;
    const style = getComputedStyle(element);
    const ink = rgba(element instanceof SVGElement ? style.fill : style.color);
    ink[3] *= shown(element);
    const ground = behind(element, box.left + box.width / 2, box.top + box.height / 2);
    const [a, b] = [luminance(over(ink, ground)), luminance(ground)].sort((p, q) => q - p);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < least)
      wrong.add(`${nameOf(element)} ${brief(node.textContent)}: contrast ${ratio.toFixed(2)}`);
  }
  if (!n) wrong.add("no text");
  return [...wrong];
}

// Marks whose fill and outline are both too near to the page's colour; not of grids, and not the
// cells of heat maps, whose paleness is what they say
function faintMarks(least) {
  const wrong = new Set();
  const ground = luminance(rgba(getComputedStyle(document.body).backgroundColor));
  for (const each of all("svg path, svg rect, svg circle, svg use")) {
    if (each.matches(".grid, .cell, [fill-opacity], defs *")) continue;
    const style = getComputedStyle(each);
    const ratios = [style.fill, style.stroke].map(rgba).filter((ink) => ink[3] === 1).map((ink) => {
      const [a, b] = [luminance(ink), ground].sort((p, q) => q - p);
      return (a + 0.05) / (b + 0.05);
    });
    const best = Math.max(0, ...ratios);
    const called = `${each.localName}.${each.getAttribute("class")}`;
    if (best < least) wrong.add(`${called}: contrast ${best.toFixed(2)}`);
  }
  return [...wrong];
}

// ---- tables and the keyboard ----

function tables() {
  const wrong = [];
  if (!all("table").length) wrong.push("no table");
  for (const table of all("table")) {
    const caption = table.querySelector(":scope > caption")?.textContent.trim();
    const called = `${nameOf(table)} ${brief(caption || "")}`;
    if (!caption) wrong.push(`${called} has no caption`);
    for (const each of all("th", table))
      if (!["row", "col", "rowgroup", "colgroup"].includes(each.scope))
        wrong.push(`${called}: header ${brief(each.textContent)} has no scope`);
    const n = all("thead tr:first-child th[scope=col]", table).length;
    if (!n) wrong.push(`${called} has no headers of columns`);
    for (const row of all("tbody tr", table)) {
      if (row.cells[0].localName !== "th") wrong.push(`${called} has a row without a header`);
      if (row.cells.length !== n) wrong.push(`${called}: ${row.cells.length} cells, ${n} columns`);
    }
  }
  return wrong;
}

function focused() {
  const element = document.activeElement;
  const box = element.getBoundingClientRect();
  const { outlineStyle, outlineWidth } = getComputedStyle(element);
  return {
    name: nameOf(element),
    seen: box.right > 0 && box.left < innerWidth && box.bottom > 0 && box.top < innerHeight,
    outlined: outlineStyle !== "none" && parseFloat(outlineWidth) >= 1,
  };
}

const stops = () => all("a, summary, [tabindex]").length;

// All that scrolls from side to side, and what it lacks to be used without a mouse
function scrolling() {
  return all("body *").filter((each) =>
    ["auto", "scroll"].includes(getComputedStyle(each).overflowX) &&
    each.scrollWidth > each.clientWidth,
  ).map((each) => {
    const lacks = [];
    if (each.tabIndex < 0 || !each.hasAttribute("tabindex")) lacks.push("no tabindex");
    if (!each.getAttribute("role") || !each.getAttribute("aria-label")) lacks.push("no name");
    return { name: nameOf(each), lacks: lacks.join(", ") };
  });
}

// ---- paper ----

// But for what is folded, and what a page leaves out on paper and says so
function cutOnPaper(width, height) {
  const wrong = [];
  for (const each of all("svg, table")) {
    if (each.closest("details:not([open]), .unprinted")) continue;
    const box = each.getBoundingClientRect();
    if (!seen(each) || !box.width) wrong.push(`${nameOf(each)} is not printed`);
    if (box.right > width + 1 || box.left < -1) wrong.push(`${nameOf(each)} leaves the paper`);
    if (each.localName === "svg" && box.height > height)
      wrong.push(`${nameOf(each)} is higher than a sheet`);
    for (let up = each.parentElement; up; up = up.parentElement)
      if (getComputedStyle(up).overflowX !== "visible" && up.scrollWidth > up.clientWidth + 1)
        wrong.push(`${nameOf(each)} is cut by ${nameOf(up)}`);
  }
  return wrong;
}
