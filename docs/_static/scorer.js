// How results of the search are ranked: as Sphinx does by default, with headings that hold the
// query itself before all else.
var Scorer = {
  score: ([docname, title, anchor, description, score, filename, kind]) =>
    kind === "title" ? score + 20 : score,
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
