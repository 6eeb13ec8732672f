// Pictures enlarge on a click, commands can be copied, and each key of a table has an address of its own.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const article = document.querySelector("article");
  if (!article) return;

  const large = document.createElement("dialog");
  large.className = "large-picture";
  large.addEventListener("click", () => large.close());
  document.body.append(large);
  article.querySelectorAll("img").forEach((picture) => {
    const shown = picture.closest("a") ?? picture;
    const frame = document.createElement("div");
    frame.className = "picture";
    shown.replaceWith(frame);
    frame.append(shown);
    picture.tabIndex = 0;
    picture.title = "click to enlarge";
    const enlarge = () => {
      const copy = document.createElement("img");
      copy.src = picture.src;
      copy.alt = picture.alt;
      large.replaceChildren(copy);
      large.showModal();
    };
    picture.addEventListener("click", (event) => {
      event.preventDefault(); // Many pictures are links to their files.
      enlarge();
    });
    picture.addEventListener("keydown", (event) => event.key === "Enter" && enlarge());
  });

  article.querySelectorAll("div.highlight").forEach((block) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", () => {
      navigator.clipboard.writeText(block.querySelector("pre").innerText.trimEnd()).then(() => {
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 1500);
      });
    });
    block.append(button);
  });

  article.querySelectorAll("section").forEach((section) => {
    section.querySelectorAll(":scope > div > table td:first-child code, :scope > table td:first-child code").forEach((key) => {
      const words = key.textContent;
      const name = words.startsWith(`${section.id}.`) ? words : `${section.id}.${words}`;
      if (document.getElementById(name)) return;
      key.id = name;
      const link = document.createElement("a");
      link.className = "key-link";
      link.href = `#${encodeURIComponent(name)}`;
      link.title = "address of this key";
      link.textContent = "#";
      key.after(link);
    });
  });
  const asked = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (asked) asked.scrollIntoView({ block: "center" });
});
