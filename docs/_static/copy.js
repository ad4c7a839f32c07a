// A button on each block of code copies it: of a session what was typed, without prompts and outputs.
const typed = (lines) => {
  const prompt = lines[0].startsWith("$") ? /^\$ / : /^(>>>|\.\.\.)( |$)/;
  const isTyped = (line, i) => prompt.test(line) || (i > 0 && lines[i - 1].endsWith("\\"));
  return lines.filter(isTyped).map((line) => line.replace(prompt, ""));
};
document.addEventListener("DOMContentLoaded", () => {
  if (!navigator.clipboard) return; // browsers have none on pages of http://
  for (const block of document.querySelectorAll("div.highlight > pre")) {
    const button = document.createElement("button");
    button.className = "copy";
    button.type = "button";
    button.textContent = "copy";
    button.addEventListener("click", async () => {
      const lines = block.innerText.trimEnd().split("\n");
      const isSession = /^(>>>|\$) /.test(lines[0]);
      await navigator.clipboard.writeText((isSession ? typed(lines) : lines).join("\n") + "\n");
      button.textContent = "copied";
      setTimeout(() => (button.textContent = "copy"), 1500);
    });
    block.parentElement.append(button);
  }
});
