package webtest

// runAxe looks for violations, after the next two frames, which draw what has just changed. The bars that stay in sight while a page scrolls
// are in the flow meanwhile, because a person scrolls what they cover into sight.
const runAxe = `(async () => {
	const bars = document.querySelectorAll('.top, .bar, .talk-dock');
	for (const bar of bars) bar.style.position = 'static';
	await new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)));
	const found = await axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa']});
	for (const bar of bars) bar.style.position = '';
	return found.violations.flatMap(v => v.nodes.map(n => v.id + ': ' + n.target.join(' ') + ': ' + n.failureSummary));
})()`

// Axe returns the violations of the rules of WCAG 2.2 AA in a page, as texts. script is the text of axe-core. The place to which the page is
// scrolled makes no difference.
func (p *Page) Axe(script string) []string {
	p.b.t.Helper()
	if !p.Holds(`window.axe`) {
		p.Eval(script+"\n;0", nil)
	}
	var found []string
	p.Eval(runAxe, &found)
	return found
}
