// Bundles the page into what the node serves, and its graph for notebooks: no request to anywhere else.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";

const out = "../p2pnode/watch/dashboard/static";
mkdirSync(out, { recursive: true });

await build({
  entryPoints: { page: "src/main.js", widget: "src/widget.js" },
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  legalComments: "none",
  external: ["./figures.js"], // page/figures.py writes it
  outdir: out,
});
await build({ entryPoints: { page: "src/page.css" }, bundle: true, minify: true, outdir: out });
for (const name of ["index.html", "icon.svg"]) copyFileSync(`src/${name}`, `${out}/${name}`);

const licences = ["d3-force", "d3-dispatch", "d3-quadtree", "d3-timer", "uplot", "qrcode-generator"].map((name) => {
  const about = JSON.parse(readFileSync(`node_modules/${name}/package.json`, "utf8"));
  let text = "";
  for (const file of ["LICENSE", "LICENSE.md", "LICENSE.txt"]) {
    try {
      text = readFileSync(`node_modules/${name}/${file}`, "utf8").trim();
      break;
    } catch {}
  }
  return `${name} ${about.version} (${about.license})\n\n${text}\n`;
});
writeFileSync(`${out}/LICENCES.txt`, licences.join("\n----\n\n"));

// By this a test sees, without npm, whether the bundle was made from the sources as they are and was not changed since.
const sha256 = (paths) => createHash("sha256").update(Buffer.concat(paths.map((path) => readFileSync(path)))).digest("hex");
const sources = ["build.mjs", "package-lock.json", ...readdirSync("src").sort().map((name) => `src/${name}`)];
const made = ["LICENCES.txt", "icon.svg", "index.html", "page.css", "page.js", "widget.js"].map((name) => `${out}/${name}`);
writeFileSync(`${out}/bundle.sha256`, `${sha256(sources)} sources\n${sha256(made)} bundle\n`);
