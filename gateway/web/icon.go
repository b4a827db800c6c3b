package web

import "html/template"

// icons are the shapes of icons, in a box of 24 by 24.
var icons = map[string]string{
	"logo":     `<circle cx="7" cy="5" r="2.4"/><circle cx="17" cy="6" r="2.4"/><path d="M7 7.5V21M7 17c0-5 10-3 10-8.5"/>`,
	"inbox":    `<path d="M3 13h5l1.5 3h5L16 13h5"/><path d="M5.5 5h13L21 13v5a1.5 1.5 0 0 1-1.5 1.5h-15A1.5 1.5 0 0 1 3 18v-5z"/>`,
	"branch":   `<circle cx="7" cy="5.5" r="2"/><circle cx="7" cy="18.5" r="2"/><circle cx="17" cy="8" r="2"/><path d="M7 7.5v9M17 10c0 4.5-10 2-10 6.5"/>`,
	"task":     `<rect x="4" y="4" width="16" height="16" rx="3"/><path d="m8.5 12 2.5 2.5 4.5-5"/>`,
	"repo":     `<path d="M5 4.5A1.5 1.5 0 0 1 6.5 3H19v14H6.5A1.5 1.5 0 0 0 5 18.5z"/><path d="M5 18.5A1.5 1.5 0 0 0 6.5 21H19v-4"/><path d="M9 7h6"/>`,
	"node":     `<rect x="3" y="4" width="18" height="7" rx="2"/><rect x="3" y="13" width="18" height="7" rx="2"/><path d="M7 7.5h.01M7 16.5h.01"/>`,
	"settings": `<path d="M4 7h9M17 7h3M4 17h3M11 17h9"/><circle cx="15" cy="7" r="2"/><circle cx="9" cy="17" r="2"/>`,
	"person":   `<circle cx="12" cy="8" r="4"/><path d="M4.5 20.5c1-4 4-6 7.5-6s6.5 2 7.5 6"/>`,
	"plus":     `<path d="M12 5v14M5 12h14"/>`,
	"search":   `<circle cx="11" cy="11" r="6.5"/><path d="m20 20-4.3-4.3"/>`,
	"send":     `<path d="M12 19V5M6 11l6-6 6 6"/>`,
	"terminal": `<rect x="3" y="4" width="18" height="16" rx="2.5"/><path d="m7 9 3 3-3 3M13 15h4"/>`,
	"chat":     `<path d="M4 5h16v11H10l-4 4v-4H4z"/>`,
	"eye":      `<path d="M2.5 12S6 5.5 12 5.5 21.5 12 21.5 12 18 18.5 12 18.5 2.5 12 2.5 12z"/><circle cx="12" cy="12" r="2.8"/>`,
	"pulse":    `<path d="M3 12h4l2.5-7 5 14 2.5-7h4"/>`,
	"stop":     `<rect x="6" y="6" width="12" height="12" rx="2"/>`,
	"again":    `<path d="M20 5v5h-5M4 19v-5h5"/><path d="M19 10a7.5 7.5 0 0 0-13-2M5 14a7.5 7.5 0 0 0 13 2"/>`,
	"more":     `<path d="M5 12h.01M12 12h.01M19 12h.01"/>`,
	"check":    `<path d="m5 12.5 4.5 4.5L19 7.5"/>`,
	"bell":     `<path d="M6 10a6 6 0 0 1 12 0c0 6 2 7 2 7H4s2-1 2-7M10 20.5h4"/>`,
	"key":      `<circle cx="8" cy="14" r="4"/><path d="m11 11 8.5-8M16 6l3 3"/>`,
	"import":   `<path d="M12 3v12M7 10l5 5 5-5M4 20h16"/>`,
	"lock":     `<rect x="5" y="10.5" width="14" height="10" rx="2"/><path d="M8 10.5V7.5a4 4 0 0 1 8 0v3"/>`,
	"theme":    `<circle cx="12" cy="12" r="8.5"/><path d="M12 3.5v17a8.5 8.5 0 0 0 0-17z"/>`,
	"next":     `<path d="m9 5 7 7-7 7"/>`,
	"back":     `<path d="m15 5-7 7 7 7"/>`,
	"folder":   `<path d="M3 6.5A1.5 1.5 0 0 1 4.5 5h4.7l2 2.5h8.3A1.5 1.5 0 0 1 21 9v9a1.5 1.5 0 0 1-1.5 1.5h-15A1.5 1.5 0 0 1 3 18z"/>`,
	"file":     `<path d="M6 3h8l4 4v14H6z"/><path d="M14 3v4h4"/>`,
	"export":   `<path d="M12 15V3M7 8l5-5 5 5M4 20h16"/>`,
	"copy":     `<rect x="9" y="9" width="11" height="11" rx="2"/><path d="M15 9V6a2 2 0 0 0-2-2H6a2 2 0 0 0-2 2v7a2 2 0 0 0 2 2h3"/>`,
}

// icon returns an icon, which says nothing to a screen reader.
func icon(name string) template.HTML {
	return template.HTML(`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">` +
		icons[name] + `</svg>`)
}
