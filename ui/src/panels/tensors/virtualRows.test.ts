import { expect, test } from 'vitest'
import { HIGHEST, pagesOf, rowsInSight, scrollTo } from './virtualRows'

test('a short table is drawn as it is', () => {
  const shown = rowsInSight(10, 24, 0, 500)
  expect([shown.first, shown.last, shown.height, shown.topOf(3)]).toEqual([0, 9, 240, 72])
  expect(rowsInSight(0, 24, 0, 500)).toMatchObject({ first: 0, last: -1, height: 0 })
})

test('only the visible rows of a million are drawn, from the first to the last', () => {
  const top = rowsInSight(1_000_000, 24, 0, 480)
  expect([top.first, top.last, top.height]).toEqual([0, 25, HIGHEST])
  const end = rowsInSight(1_000_000, 24, HIGHEST - 480, 480)
  expect(end.last).toBe(999_999)
  expect(end.topOf(999_999)).toBeCloseTo(HIGHEST - 24, 3)
})

test('scrolling to a row moves no further than needed', () => {
  expect(scrollTo(5, 100, 20, 0, 200)).toBe(0)
  expect(scrollTo(20, 100, 20, 0, 200)).toBe(220)
  expect(scrollTo(2, 100, 20, 300, 200)).toBe(40)
  const far = scrollTo(999_999, 1_000_000, 24, 0, 480)
  expect(rowsInSight(1_000_000, 24, far, 480).last).toBe(999_999)
})

test('the pages that contain rows', () => {
  expect(pagesOf(0, 199, 200)).toEqual([0])
  expect(pagesOf(190, 410, 200)).toEqual([0, 1, 2])
  expect(pagesOf(0, -1, 200)).toEqual([])
})
