// A button on each block of code copies it: of a session in Python what was typed, without outputs.
document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll("div.highlight > pre")) {
    const button = document.createElement("button");
    button.className = "copy";
    button.type = "button";
    button.textContent = "copy";
    button.addEventListener("click", async () => {
      const lines = block.innerText.trimEnd().split("\n");
      const typed = lines.filter((line) => /^(>>>|\.\.\.)( |$)/.test(line));
      const kept = typed.length ? typed.map((line) => line.slice(4)) : lines;
      await navigator.clipboard.writeText(kept.join("\n") + "\n");
      button.textContent = "copied";
      setTimeout(() => (button.textContent = "copy"), 1500);
    });
    block.parentElement.append(button);
  }
});
