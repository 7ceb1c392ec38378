import { expect, test } from 'vitest'
import { addedColour, addedOf, addedShare, scopeAround } from './added'
import { shownStep } from './queries'
import type { AddedError, RankComparison } from '~/api/types'

const entry = (path: string, added: number | null, divergent = 0, non_finite = false) =>
  ({
    path,
    kind: 'operator',
    added,
    relative: added,
    non_finite,
    divergent,
    compared: 1,
    unmatched: 0,
  }) as AddedError

test('a box of several operators has the colour of the largest added error', () => {
  const entries = [entry('a', 1e-3, 1), entry('b', 2e-6), entry('c', 1)]
  expect(addedOf(entries, ['a', 'b'], 1)).toEqual({ added: 1e-3, divergent: 1, largest: 1 })
})

test('a NaN in only one run is marked as such, and without data there is no colour', () => {
  const entries = [entry('a', null, 1, true), entry('b', 1e-3), entry('c', null)]
  expect(addedOf(entries, ['a', 'b'], 1)?.added).toBeNull()
  expect(addedOf(entries, ['c', 'd'], 1)).toBeUndefined()
})

test('an operator that takes error away adds none', () => {
  expect(addedOf([entry('a', -1e-3)], ['a'], 1)?.added).toBe(0)
})

test('decades below the largest error have different colours', () => {
  expect([1, 1e-3, 1e-6, 1e-9, 0].map((added) => addedShare(added, 1))).toEqual([
    1,
    expect.closeTo(0.5, 6),
    expect.closeTo(0, 6),
    0,
    0,
  ])
  const colours = [1, 1e-2, 1e-4, null].map((added) => addedColour(added, 1, 'dark').back)
  expect(new Set(colours).size).toBe(4)
})

test('the scope that lists a node', () => {
  expect([scopeAround('Default/net/relu'), scopeAround('fc1.weight')]).toEqual(['Default/net', ''])
})

test('the step of the finding is shown first, and the last where there is none', () => {
  const result = (step: number | null) => ({ steps: [1, 2, 5], step }) as RankComparison
  expect(shownStep(result(2), null)).toBe(2)
  expect(shownStep(result(2), 1)).toBe(1)
  expect(shownStep(result(null), 7)).toBe(5)
  expect(shownStep({ ...result(3), steps: [] }, null)).toBeNull()
})
