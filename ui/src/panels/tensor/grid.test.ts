import { expect, it } from 'vitest'
import { gridOf } from './grid'
import { parseEntries, type Entry } from './slices'

const grid = (entries: string[], shape: number[]) => gridOf(parseEntries(entries, shape) as Entry[])

it('lays two ranges out as rows and columns, with the indices of the tensor', () => {
  const layout = grid(['2', '10:20', '::2'], [4, 32, 9])
  expect([layout.rows, layout.columns]).toEqual([10, 5])
  expect([layout.rowLabel(1), layout.columnLabel(2)]).toEqual(['11', '4'])
  expect(layout.indexOf(1, 2)).toEqual([2, 11, 4])
  expect([layout.cellOf([2, 11, 4]), layout.cellOf([2, 11, 5]), layout.cellOf([1, 11, 4])]).toEqual([
    [1, 2],
    null,
    null,
  ])
  const part = layout.part({ row: 4, column: 2, rows: 3, columns: 3 })
  expect(part.slice).toBe('[2, 14:17, 4:9:2]')
  expect(part.position(5, 4)).toBe(5)
})

it('wraps one range into rows of ten', () => {
  const layout = grid(['3:28'], [30])
  expect([layout.rows, layout.columns, layout.length]).toEqual([3, 10, 25])
  expect([layout.rowLabel(2), layout.columnLabel(4)]).toEqual(['23', '+4'])
  expect([layout.cellOf([27]), layout.cellOf([28])]).toEqual([[2, 4], null])
  const part = layout.part({ row: 2, column: 0, rows: 512, columns: 10 })
  expect(part.slice).toBe('[23:28]')
  expect(part.position(2, 4)).toBe(4)
})

it('shows a single element as one', () => {
  const layout = grid(['1', '-1'], [2, 3])
  expect([layout.rows, layout.columns, layout.length]).toEqual([1, 1, 1])
  expect(layout.indexOf(0, 0)).toEqual([1, 2])
  expect([layout.cellOf([1, 2]), layout.cellOf([0, 2])]).toEqual([[0, 0], null])
  expect(layout.part({ row: 0, column: 0, rows: 1, columns: 1 }).slice).toBe('[1, 2]')
})
