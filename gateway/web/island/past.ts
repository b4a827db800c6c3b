// The script of timelines, outputs and runs. later.ts loads it.

import type { tools } from './later';
import { lines } from './lines';
import { scrub } from './scrub';
import { steps } from './steps';

export type Tools = typeof tools;

export function begin(t: Tools) {
  scrub(t);
  lines(t);
  steps();
}
