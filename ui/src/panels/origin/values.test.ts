import { expect, test } from 'vitest'
import type { TensorRecord } from '~/api/types'
import { sideOf } from './values'

const tensor = (of: Record<string, number | null>) =>
  ({
    io: 'output',
    statistics: {
      dtype: 'float32',
      count: 65_536,
      min: null,
      max: null,
      nan_count: 0,
      neg_inf_count: 0,
      pos_inf_count: 0,
      ...of,
    },
  }) as unknown as TensorRecord

test('a tensor with finite elements has bounds, whether they were recorded or not', () => {
  expect(sideOf([tensor({ nan_count: 1024 })], 'output')).toMatchObject({ nan: 1024, isUnbounded: true })
  expect(sideOf([tensor({ nan_count: 65_536 })], 'output')).toMatchObject({ min: null, isUnbounded: false })
  const both = sideOf([tensor({ min: -1, max: 2 }), tensor({ nan_count: 1 })], 'output')
  expect(both).toMatchObject({ min: -1, isUnbounded: true })
  expect(sideOf([tensor({ min: -1, max: 2, nan_count: 5 })], 'output')).toMatchObject({
    min: -1,
    max: 2,
    isUnbounded: false,
  })
})
