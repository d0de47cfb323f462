// Which results come first: pages that explain, then the API, then measurements and the changelog.
"use strict";

var Scorer = {
  score: ([docname, title, anchor, descr, score, filename, kind]) => {
    const explains = /^(guide\/|start$|install$|choose$|faq$|gpu$|glossary$)/;
    const records = /^(results|papers|project)\/|^(changelog|inside)$/;
    if (explains.test(docname)) return score + (kind === "text" ? 8 : 30);
    if (records.test(docname)) return score - 10;
    return score;
  },
  // Values of Sphinx
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
