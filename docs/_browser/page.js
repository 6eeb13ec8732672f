// Loads Pyodide and clustersim, and shows what clustersim.apps.ui.in_browser answers.
const PYODIDE = "https://cdn.jsdelivr.net/pyodide/v314.0.7/full/";
const PURE = ["quantiphy", "ruamel.yaml", "simpy"];
const at = (id) => document.getElementById(id);
let python;

async function start() {
  const { loadPyodide } = await import(`${PYODIDE}pyodide.mjs`);
  python = await loadPyodide({ indexURL: PYODIDE });
  at("state").textContent = "loading packages";
  await python.loadPackage(["numpy", "pydantic", "micropip"]);
  await python.pyimport("micropip").install(PURE);
  const archive = await (await fetch("clustersim.zip")).arrayBuffer();
  python.unpackArchive(archive, "zip", { extractDir: python.runPython("import site; site.getsitepackages()[0]") });
  const examples = JSON.parse(call("examples"));
  for (const name of Object.keys(examples)) at("examples").append(new Option(name, name, false, name === "starter"));
  at("examples").onchange = () => { at("text").value = examples[at("examples").value]; };
  at("examples").onchange();
  if (location.hash.startsWith("#scenario=")) show(JSON.parse(call("text_of", location.hash)));
  at("run").onclick = run;
  at("examples").disabled = at("run").disabled = false;
  at("state").textContent = "ready";
}

function call(name, ...given) {
  return python.pyimport("clustersim.apps.ui.in_browser")[name](...given);
}

function run() {
  at("state").textContent = "running";
  // A frame is drawn before Python holds the page up.
  setTimeout(() => {
    const began = performance.now();
    try {
      show(JSON.parse(call("answer", at("text").value)));
      at("state").textContent = `${((performance.now() - began) / 1000).toFixed(1)} s`;
    } catch (error) {
      show({ error: String(error).split("\n").filter(Boolean).pop() });
      at("state").textContent = "failed";
    }
  }, 20);
}

function show(found) {
  at("error").textContent = found.error ?? "";
  if (found.text !== undefined) at("text").value = found.text;
  at("result").hidden = found.figures === undefined;
  if (found.figures === undefined) return;
  at("figures").replaceChildren(...found.figures.map((cells) => {
    const row = document.createElement("tr");
    row.append(...cells.map((cell) => Object.assign(document.createElement("td"), { textContent: cell })));
    return row;
  }));
  at("flags").replaceChildren(...found.flags.map((flag) => Object.assign(document.createElement("li"), { textContent: flag })));
  at("link").href = found.link;
  draw(at("timeline"), found.rows, found.duration_s);
}

export function bars(rows, duration, width, height) {
  // Left end, width, row, colour and title of each span, in pixels.
  return rows.flatMap((row, place) => row.spans.map(([start, end, fill, name]) => ({
    x: (start / duration) * width, width: Math.max(0.5, ((end - start) / duration) * width), y: place * height, fill,
    title: `${row.name}: ${name}, ${((end - start) * 1e3).toPrecision(4)} ms from ${(start * 1e3).toPrecision(4)} ms`,
  })));
}

function draw(svg, rows, duration) {
  const [width, height, make] = [1000, 16, (name, given) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(given)) made.setAttribute(key, value);
    return made;
  }];
  svg.setAttribute("viewBox", `0 0 ${width} ${rows.length * height}`);
  svg.replaceChildren(...bars(rows, duration, width, height).map((bar) => {
    const shape = make("rect", { x: bar.x, y: bar.y + 1, width: bar.width, height: height - 2, fill: bar.fill });
    shape.append(Object.assign(make("title", {}), { textContent: bar.title }));
    return shape;
  }));
}

if (typeof document !== "undefined") {
  start().catch((error) => {
    at("state").textContent = "failed";
    at("error").textContent = `Python could not be loaded: ${error}`;
  });
}
