import { expect, test } from 'vitest'
import { unbroken } from './chart'

test('the line of a trial crosses no axis on which the trial has no value', () => {
  expect(unbroken([1, 'a', 3])).toEqual([[1, 'a', 3]])
  expect(unbroken([1, 'a', null])).toEqual([[1, 'a', null]])
  expect(unbroken([1, 2, null, 0, 5])).toEqual([
    [1, 2, null, null, null],
    [null, null, null, 0, 5],
  ])
  expect(unbroken([null, null])).toEqual([])
})
