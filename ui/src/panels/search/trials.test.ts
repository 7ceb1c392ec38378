import { expect, test } from 'vitest'
import type { SearchResult, Trial } from '~/api/types'
import { bestSoFar, causes, isWide, sorted } from './trials'

const ill = { condition: 'tensor_overflow', severity: 'error', node: 'a', step: 3, line: '', tensors: 1 }
const trials = [
  { number: 0, state: 'complete', params: { lr: 0.1 }, values: [3] },
  { number: 1, state: 'pruned', params: { lr: 9 }, values: [], illness: ill, reason: 'ill' },
  { number: 2, state: 'complete', params: {}, values: [5], warnings: [{ ...ill, severity: 'warning' }] },
  { number: 3, state: 'complete', params: { lr: 0.01 }, values: [1] },
].map((trial) => ({ warnings: [], reason: '', ...trial })) as unknown as Trial[]

test('trials without a value in a column come last, whichever the direction', () => {
  const numbers = (column: string, descending: boolean) =>
    sorted(trials, { column, descending }, ['loss']).map(({ number }) => number)
  expect(numbers('target:loss', false)).toEqual([3, 0, 2, 1])
  expect(numbers('target:loss', true)).toEqual([2, 0, 3, 1])
  expect(numbers('param:lr', true)).toEqual([1, 0, 3, 2])
})

test('the best so far follows the goal, and trials without a value are left out', () => {
  const result = (goal: string) => ({ trials, targets: [{ name: 'loss', goal }] }) as unknown as SearchResult
  expect(bestSoFar(result('minimize'), 0).map(([, best]) => best)).toEqual([3, 3, 1])
  expect(bestSoFar(result('maximize'), 0).map(([, best]) => best)).toEqual([3, 5, 5])
})

test('causes that ended trials come before warnings', () => {
  expect(causes(trials).map((cause) => [cause.isWarning, cause.trials.map(({ number }) => number)])).toEqual([
    [false, [1]],
    [true, [2]],
  ])
})

test('values that are decades apart need a logarithmic scale', () => {
  expect(isWide([0.2, 0.1, 1e27])).toBe(true)
  expect(isWide([0.2, 0.1, 5])).toBe(false)
  expect(isWide([-1, 0.1, 1e9])).toBe(false)
  expect(isWide([])).toBe(false)
})
