// Draws the charts one after the other, so that a page of fifty stays responsive. The interpreter (ast) keeps Vega from
// compiling strings, which the page's content security policy forbids.
(async () => {
  const specs = JSON.parse(document.getElementById("charts").textContent);
  const style = {
    background: null,
    font: getComputedStyle(document.body).fontFamily,
    view: { stroke: null },
    axis: {
      labelColor: "var(--muted)", titleColor: "var(--muted)", gridColor: "var(--line)", domainColor: "var(--line)",
      tickColor: "var(--line)", labelFontSize: 11.5, titleFontSize: 11.5, titleFontWeight: 500, titlePadding: 8,
    },
    axisY: { labelColor: "var(--text)" },
    legend: { labelColor: "var(--text)", titleColor: "var(--muted)", labelFontSize: 11.5, symbolSize: 70 },
  };
  const frame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  for (const figure of document.querySelectorAll("[data-chart]")) {
    await vegaEmbed(figure, specs[figure.dataset.chart], {
      mode: "vega-lite", renderer: "svg", actions: false, ast: true, config: style, tooltip: { theme: "custom" },
    });
    await frame();
  }
  document.documentElement.dataset.drawn = "yes";
})();
