import { expect, test } from 'vitest'
import type { Action } from '~/state/actions'
import { foundActions, pastedAddress } from './found'

function action(label: string, disabled?: string): Action {
  return { id: label, label, group: 'Run', run: () => undefined, disabled }
}

test('every word must be there, in any order', () => {
  const actions = [action('Step back'), action('Continue'), action('Next node')]
  expect(foundActions(actions, 'back st').map((one) => one.label)).toEqual(['Step back'])
  expect(foundActions(actions, 'run').length).toBe(3)
  expect(foundActions(actions, '').length).toBe(3)
})

test('what cannot be done comes last', () => {
  const found = foundActions([action('Pause', 'nothing runs'), action('Continue')], '')
  expect(found.map((one) => one.label)).toEqual(['Continue', 'Pause'])
})

test.each([
  ['0/kernel_graph_0/Default/conv1/Log-op3:0@12', '0/kernel_graph_0/Default/conv1/Log-op3:0'],
  [' 1/g/Log-op3:input.2 ', '1/g/Log-op3:input.2'],
  ['Default/conv1', null],
  ['conv:0', null],
])('an address that was pasted: %s', (query, expected) => {
  expect(pastedAddress(query)).toBe(expected)
})
