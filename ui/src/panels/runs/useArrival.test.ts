import { expect, test } from 'vitest'
import type { Session } from '~/api/types'
import { arrived } from './useArrival'

const session = (id: string, state = 'paused', live = true) =>
  ({ id, state, capabilities: { live } }) as unknown as Session

test('the first training that attaches while the user waits is shown', () => {
  expect(arrived(new Set(), [session('1')])?.id).toBe('1')
  expect(arrived(new Set(['1']), [session('1', 'lost'), session('2')])?.id).toBe('2')
})

test('earlier trainings, a second training and dumps are not shown automatically', () => {
  expect(arrived(null, [session('1')])).toBeUndefined()
  expect(arrived(new Set(['1']), [session('1')])).toBeUndefined()
  expect(arrived(new Set(['1']), [session('1'), session('2')])).toBeUndefined()
  expect(arrived(new Set(), [session('1', 'paused', false)])).toBeUndefined()
})
