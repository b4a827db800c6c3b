package tasks

// browserTest and captureScreenshot are browser_test and capture_screenshot
// (features row 121): they need a Shell that is a [Browser].
//
// browser_test takes "spec", a file of the repository (".ramus/browser/todo.yaml"),
// or "check", a spec inline; capture_screenshot takes url, viewports, full_page,
// selector, mask, start.
