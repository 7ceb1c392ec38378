import { expect, test } from 'vitest'
import type { Facts, FindingRecord } from '~/api/types'
import { choiceOf, drawnItems, factSeries, itemsOf } from './facts'

const facts: Facts = {
  subject: 'parameters',
  rank: 0,
  columns: {
    step: [1, 1, 2, 2, 2],
    name: ['a', 'b', 'a', 'b', 'b'],
    moved: [1, 0.5, null, 0.25, 0],
  },
}

test('each item has a curve, and of several rows in a step the last one counts', () => {
  expect(itemsOf(facts)).toEqual(['a', 'b'])
  const series = factSeries(facts, 'parameters.moved', ['b', 'a'])
  expect(series.map(({ name, steps, values }) => ({ name, steps, values }))).toEqual([
    { name: 'b', steps: [1, 2], values: [0.5, 0] },
    { name: 'a', steps: [1, 2], values: [1, null] },
  ])
})

test('the items chosen are drawn; before a choice, or if none of them exists, the first ones', () => {
  const items = ['a', 'b', 'c', 'd', 'e']
  const choice = (names: string[] | null) => ({ column: 'parameters.moved' as const, names })
  expect(drawnItems(choice(['e', 'x']), items)).toEqual(['e'])
  expect(drawnItems(choice(null), items)).toEqual(['a', 'b', 'c', 'd'])
  expect(drawnItems(choice(['x']), items)).toEqual(['a', 'b', 'c', 'd'])
  expect(drawnItems(choice([]), items)).toEqual([])
})

test('a finding about parameters shows theirs, and one that no curve shows has none', () => {
  const finding = (fact: string, where: Record<string, string>) =>
    choiceOf({ fact, where } as unknown as FindingRecord)
  expect(finding('parameters.lost', { parameter: 'a, b … (9)' })).toEqual({
    column: 'parameters.lost',
    names: ['a', 'b'],
  })
  expect(finding('groups.rate', { parameter: 'a' })).toEqual({ column: 'groups.rate', names: null })
  expect(finding('', { module: 'a' })).toBeNull()
})
