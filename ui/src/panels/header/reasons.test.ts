import { expect, test } from 'vitest'
import type { Capabilities, Session } from '~/api/types'
import { lastStep, whyNot } from './reasons'

function session(change: Partial<Session>, capabilities: Partial<Capabilities> = {}): Session {
  return { state: 'paused', step: 3, ...change, capabilities } as unknown as Session
}

test('an available action has no reason', () => {
  expect(whyNot(session({}, { can_step: true }), 'can_step', true)).toBeUndefined()
})

test('without the server no action is available', () => {
  expect(whyNot(session({}, { can_step: true }), 'can_step', false)).toBe('server')
})

test.each([
  [session({ state: 'running' }), 'can_step', 'running'],
  [session({ state: 'finished' }), 'can_pause', 'finished'],
  [session({}), 'can_pause', 'still'],
  [session({}), 'can_step', 'atEnd'],
  [session({}, { live: true }), 'can_next_node', 'nodes'],
  [session({ step: 0 }), 'can_previous_node', 'nothingRan'],
  [session({}, { live: true }), 'can_previous_node', 'nodes'],
  [session({ step: 0 }, { live: true, can_next_node: true }), 'can_previous_node', 'nothingRan'],
  [session({}, { live: true, can_next_node: true }), 'can_previous_node', 'forwardOnly'],
  [session({ step: 0 }, { live: true }), 'can_step_back', 'firstStep'],
  [session({}, { live: true }), 'can_go_to_step', 'back'],
  [session({}), 'can_recheck', 'noWatchpoint'],
] as const)('an unavailable action has a reason: %#', (given, can, reason) => {
  expect(whyNot(given, can, true)).toBe(reason)
})

test('the last step of a training is the one at which it is stopped', () => {
  expect(lastStep(session({ present_step: 9 }, { live: true }))).toBe(9)
  expect(lastStep(session({}, { live: true }))).toBe(3)
  expect(lastStep(session({ total_steps: 20 }))).toBe(20)
})
