import { expect, test } from 'vitest'
import type { Action } from '~/state/actions'
import { matchingActions, pastedAddress } from './matches'

function action(label: string, disabled?: string): Action {
  return { id: label, label, group: 'Run', run: () => undefined, disabled }
}

test('every word must match, in any order', () => {
  const actions = [action('Step back'), action('Continue'), action('Next node')]
  expect(matchingActions(actions, 'back st').map(({ label }) => label)).toEqual(['Step back'])
  expect(matchingActions(actions, 'run').length).toBe(3)
  expect(matchingActions(actions, '').length).toBe(3)
})

test('unavailable actions come last', () => {
  const matches = matchingActions([action('Pause', 'nothing runs'), action('Continue')], '')
  expect(matches.map(({ label }) => label)).toEqual(['Continue', 'Pause'])
})

test.each([
  ['0/kernel_graph_0/Default/conv1/Log-op3:0@12', '0/kernel_graph_0/Default/conv1/Log-op3:0'],
  [' 1/g/Log-op3:input.2 ', '1/g/Log-op3:input.2'],
  ['Default/conv1', null],
  ['conv:0', null],
])('a pasted address: %s', (query, expected) => {
  expect(pastedAddress(query)).toBe(expected)
})
