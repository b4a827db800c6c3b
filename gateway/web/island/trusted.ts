// The one policy of Trusted Types. It takes HTML of this server alone: fragments of /live, and pages of our own origin.

interface Policy { createHTML(text: string): string }
const types = (globalThis as { trustedTypes?: { createPolicy(name: string, rules: object): Policy } }).trustedTypes;
const policy: Policy = types?.createPolicy('ramus', { createHTML: (text: string) => text }) ?? { createHTML: text => text };

/** Returns the element that a fragment of this server describes. */
export function elementOf(html: string): Element | null {
  const t = document.createElement('template');
  t.innerHTML = policy.createHTML(html);
  return t.content.firstElementChild;
}

/** Returns the document of a page of this server. */
export function documentOf(html: string): Document {
  return new DOMParser().parseFromString(policy.createHTML(html), 'text/html');
}
