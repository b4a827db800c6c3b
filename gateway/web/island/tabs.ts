// Brings the current tab into sight, where the tabs are wider than the page.

for (const tab of document.querySelectorAll<HTMLElement>('.tabs [aria-current]')) {
  const list = tab.closest<HTMLElement>('.tabs')!;
  if (list.scrollWidth <= list.clientWidth) continue;
  const [t, l] = [tab.getBoundingClientRect(), list.getBoundingClientRect()];
  list.scrollLeft += t.left + t.width / 2 - l.left - l.width / 2;
}
