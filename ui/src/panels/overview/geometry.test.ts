import { expect, test } from 'vitest'
import type { Origin, Overview, OverviewRow } from '~/api/types'
import { beginningOf, phasesOf } from './beginning'
import {
  cellAt,
  columnOf,
  geometryOf,
  nearestCell,
  partAround,
  partBetween,
  roundDistance,
  stepTicks,
} from './geometry'

const row = (node: string, of: Partial<OverviewRow> = {}): OverviewRow => ({
  address: `0/g/${node}:0`,
  node,
  slot: 0,
  io: 'output',
  graph: 'g',
  graphs: ['g'],
  type: 'Add',
  position: 0,
  tensors: 1,
  ...of,
})

const data: Overview = {
  statistic: 'abs_mean',
  total: 12,
  offset: 2,
  tensors: 6,
  steps: [
    { first: 1, last: 2 },
    { first: 3, last: 4 },
    { first: 7, last: 7 },
  ],
  rows: [row('a', { tensors: 3 }), row('Gradients/b', { tensors: 2 }), row('c', { type: 'Parameter' })],
  values: [],
  marks: [
    [0, 0, 0],
    [0, 4, 0],
    [0, 0, 3],
  ],
  first: { address: '0/g/Gradients/b2:0', node: 'Gradients/b2', row: 1, step: 4 },
  located: [
    { address: '0/g/c:0', node: 'c', row: 2, step: null },
    { address: '0/g/merged/x:0', node: 'merged/x', row: 0, step: null },
    { address: '0/g/zoomed/out:0', node: 'zoomed/out', row: null, step: null },
  ],
  unread: 0,
  unread_bytes: 0,
}

test('a point maps to a cell, but names and axis do not', () => {
  const geometry = geometryOf(700, 300, 3, 3)
  expect(cellAt(geometry, geometry.left + 1, geometry.top + 1)).toEqual({ row: 0, column: 0 })
  expect(cellAt(geometry, geometry.left - 1, geometry.top + 1)).toBeNull()
  expect(cellAt(geometry, 699, 299)).toBeNull()
  expect(nearestCell(geometry, 9999, -5)).toEqual({ row: 0, column: 2 })
})

test('a rectangle of merged cells is a range of tensors and steps', () => {
  expect(partBetween(data, { row: 1, column: 2 }, { row: 0, column: 1 })).toEqual({
    offset: 2,
    limit: 5,
    firstStep: 3,
    lastStep: 7,
  })
  expect(partAround(data, { row: 2, column: 0 })).toEqual({ offset: 5, limit: 3, firstStep: 1, lastStep: 4 })
  expect([columnOf(data.steps, 4), columnOf(data.steps, 5)]).toEqual([1, -1])
})

test('round steps are labelled, as many as fit', () => {
  expect([0.4, 1, 3, 11, 99].map(roundDistance)).toEqual([1, 1, 5, 20, 100])
  const steps = Array.from({ length: 100 }, (_, step) => ({ first: step, last: step }))
  expect(stepTicks(steps, 5)).toEqual([0, 10, 20, 30, 40, 50, 60, 70, 80, 90])
  expect(stepTicks(steps.slice(0, 3), 60)).toEqual([0, 1, 2])
  expect(stepTicks([], 5)).toEqual([])
})

test('the beginning is the origin, in the row that it was merged into, else the first marked tensor', () => {
  const origin = (address: string, step: number, arrived = false) =>
    ({ address, step, node: '', certain: true, arrived, unseen: null }) as Origin
  expect(beginningOf(data, [])).toMatchObject({
    cell: { row: 1, column: 1 },
    step: 4,
    address: '0/g/Gradients/b2:0@4',
    name: 'Gradients/b2',
    isCertain: false,
  })
  expect(beginningOf(data, [origin('0/g/c:0@7', 7)])).toMatchObject({
    cell: { row: 2, column: 2 },
    name: 'c',
    isCertain: true,
  })
  expect(beginningOf(data, [origin('0/g/merged/x:0@3', 3)])).toMatchObject({
    cell: { row: 0, column: 1 },
    name: 'merged/x',
    isCertain: true,
  })
  const cameIn = [origin('0/g/c:0@7', 7, true)]
  expect(beginningOf(data, cameIn)).toMatchObject({ cell: { row: 2 }, isCertain: false })
  const elsewhere = [origin('0/g/not/pictured:0@3', 3)]
  expect(beginningOf(data, elsewhere)).toMatchObject({ cell: { row: 1 }, isCertain: false })
  // An earlier origin outside of the picture comes before those in it.
  const outside = [origin('0/g/zoomed/out:0@2', 2), origin('0/g/c:0@7', 7)]
  expect(beginningOf(data, outside)).toMatchObject({ cell: null, step: 2, name: 'zoomed/out' })
  const calm = { ...data, first: null }
  expect(beginningOf(calm, [])).toBeNull()
})

test('rows are grouped by the phases of a step', () => {
  expect(phasesOf(data.rows).map(({ phase }) => phase)).toEqual(['forward', 'gradients', 'parameters'])
})
