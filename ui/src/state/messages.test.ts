import { beforeEach, expect, test } from 'vitest'
import { tell, useMessages } from './messages'

beforeEach(() => useMessages.setState({ all: [] }))

test('messages of one kind are merged, with the latest text', () => {
  tell('The run goes on; pause it first.', 'info', 'run.step')
  tell('The disk is full', 'error')
  tell('The run goes on; pause it first.', 'info', 'run.step')
  tell('This is the last step there is.', 'info', 'run.step')
  tell('The disk is full', 'error')
  const { all } = useMessages.getState()
  expect(all.map(({ text, times }) => [text, times])).toEqual([
    ['This is the last step there is.', 1],
    ['The disk is full', 2],
  ])
})

test('messages are dismissed one by one or all at once, and their number is limited', () => {
  for (let number = 0; number < 100; number++) tell(`message ${number}`)
  expect(useMessages.getState().all).toHaveLength(30)
  useMessages.getState().dismiss('message 99')
  expect(useMessages.getState().all.at(-1)?.text).toBe('message 98')
  useMessages.getState().dismiss()
  expect(useMessages.getState().all).toEqual([])
})
