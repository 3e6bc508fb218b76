// What is wrong with the looks of the tab that is shown, as a list of sentences. Run in the page by test_page_views.py.
(() => {
  const visible = (selector) => [...document.querySelectorAll(selector)].filter((one) => one.checkVisibility());

  // Texts that are cut off without a way to see the rest. Names in tables and bars may end in an ellipsis.
  function clipped() {
    const cut = visible("body *").filter((one) => {
      const { overflowX, textOverflow } = getComputedStyle(one);
      return one.scrollWidth > one.clientWidth + 1 && ["hidden", "clip"].includes(overflowX) && textOverflow !== "ellipsis" && !one.matches(".unseen");
    });
    const nav = document.querySelector("nav");
    const wide = [[document.documentElement, "the page"], [nav, "the tabs"]].filter(([place]) => place.scrollWidth > place.clientWidth);
    return [...cut.map((one) => `cut off: ${one.outerHTML.slice(0, 200)}`), ...wide.map(([, name]) => `too wide: ${name}`)];
  }

  // Labels of axes that do not lie whole within their chart, and axes with too few of them.
  function ticks() {
    const charts = Object.values(p2pnode.views).flatMap((view) => [view.traffic, ...Object.values(view.charts ?? {}), view.curves?.accuracy, view.curves?.loss]);
    return charts.filter((chart) => chart?.plot && chart.place.clientWidth).flatMap(({ plot, axis }) => {
      const [pen, ratio, [across, up]] = [plot.ctx, devicePixelRatio, plot.axes];
      const width = (text) => {
        pen.font = "11px system-ui, sans-serif";
        return pen.measureText(text).width;
      };
      const left = plot.bbox.left / ratio;
      const outside = across._values.filter((text, at) => {
        const middle = left + plot.valToPos(across._splits[at], "x");
        return text && (middle + width(text) / 2 > plot.width || middle - width(text) / 2 < 0);
      });
      const tooWide = up._values.filter((text) => text && width(text) + up.labelSize > left);
      const few = up._values.filter(Boolean).length < 2 ? [`only ${up._values}`] : [];
      return [...outside, ...tooWide, ...few].map((text) => `axis of ${axis}: ${text}`);
    });
  }

  // Marks of one legend that look the same.
  function swatches() {
    return visible(".legend, .u-legend").flatMap((legend) => {
      const marks = [...legend.querySelectorAll("i, .u-marker")].filter((mark) => mark.checkVisibility());
      const looks = marks.map((mark) => {
        const { backgroundColor, backgroundImage, borderTop, width, height, borderRadius } = getComputedStyle(mark);
        return [backgroundColor, backgroundImage, borderTop, width, height, borderRadius].join();
      });
      return looks.filter((look, at) => looks.indexOf(look) !== at).map((look) => `two marks look alike: ${look}`);
    });
  }

  // Columns of words stand left, columns of numbers right, each with its heading.
  function columns() {
    const number = /^(–|never|[−-]?[\d.,·]+[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]*( ?(%|ms|[kMG]?B|°C|(s|min|h) ago))?)$/;
    return visible("main table:not(.u-legend)").flatMap((table) =>
      [...table.tHead.rows[0].cells].flatMap((head, at) => {
        const cells = [...table.tBodies[0].rows].map((row) => row.cells[at]);
        if (cells.every((cell) => cell.textContent === "–")) return [];
        const numbers = cells.every((cell) => number.test(cell.textContent));
        const wanted = cells.some((cell) => cell.matches(".heat")) ? "center" : numbers ? "right" : "left";
        const wrong = [head, ...cells].filter((cell) => getComputedStyle(cell).textAlign !== wanted);
        return wrong.map((cell) => `${head.textContent}: ${cell.textContent} should stand ${wanted}`);
      }),
    );
  }

  return [...clipped(), ...ticks(), ...swatches(), ...columns()];
})();
