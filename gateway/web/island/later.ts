// Loads the script of timelines and outputs on the pages that need it.

import { moveTo } from './live';
import { documentOf } from './trusted';
import { refreshTimes } from './time';

const src = document.querySelector<HTMLElement>('main [data-past]')?.dataset.past;

/** The functions of this script that the other one uses. It imports nothing, so that each of the two is one file. */
export const tools = { moveTo, documentOf, refreshTimes };

if (src) void import(src).then(m => (m as { begin(t: typeof tools): void }).begin(tools));
