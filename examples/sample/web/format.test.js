import { test, describe } from 'node:test';
import assert from 'node:assert/strict';
import { amount, until, escape, row } from './format.js';

describe('amount', () => {
  for (const [value, unit, want] of [
    [6, '', '6'],
    [750, 'g', '750 g'],
    [1500, 'ml', '1.5 l'],
    [1000, 'g', '1 kg'],
    [1200, '', '1200'],
  ]) {
    test(`${value} ${unit}`.trim(), () => assert.equal(amount(value, unit), want));
  }
  test('refuses what is none', () => {
    assert.throws(() => amount(-1, 'g'), RangeError);
    assert.throws(() => amount(NaN), RangeError);
  });
});

describe('until', () => {
  test('counts days', () => {
    assert.equal(until('2026-03-09', '2026-03-03'), 'in 6 days');
    assert.equal(until('2026-03-03', '2026-03-03'), 'today');
    assert.equal(until('2026-02-28', '2026-03-03'), '3 days ago');
  });
  test('knows what keeps', () => assert.equal(until('', '2026-03-03'), 'keeps'));
  test('refuses what is no day', () => assert.throws(() => until('someday', '2026-03-03'), RangeError));
});

test('a row is safe to show', () => {
  assert.equal(escape('<b>'), '&#60;b&#62;');
  assert.equal(
    row({ name: '<script>', value: 2, unit: '', until: '' }, '2026-03-03'),
    '<tr><td>&#60;script&#62;</td><td>2</td><td>keeps</td></tr>',
  );
});
