import { expect, test } from 'vitest'
import { headOf } from './headOf'

test('the first words of a verdict are emphasised, and a short one as a whole', () => {
  expect(headOf('The runs are the same: all tensors of 3 steps that both recorded are bit-equal.')).toEqual([
    'The runs are the same:',
    'all tensors of 3 steps that both recorded are bit-equal.',
  ])
  expect(headOf('The runs are the same up to rounding in 3 steps.')).toEqual([
    'The runs are the same up to rounding in 3 steps.',
    '',
  ])
  const long = `The runs agree until step 3, before which ${'w'.repeat(30)}: changed.`
  expect(headOf(long)).toEqual(['', long])
})
