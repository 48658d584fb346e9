const button = document.getElementById("copy");
const text = document.getElementById("markdown");
button.hidden = false;
button.onclick = async () => {
  let copied = true;
  try {
    await navigator.clipboard.writeText(text.textContent);
  } catch {
    text.closest("details").open = true;
    getSelection().selectAllChildren(text);
    copied = document.execCommand("copy");
  }
  button.textContent = copied ? "Copied" : "Selected: press Ctrl+C";
};
