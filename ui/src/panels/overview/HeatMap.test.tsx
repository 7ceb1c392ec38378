import { MantineProvider } from '@mantine/core'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, fireEvent, render, screen } from '@testing-library/react'
import { afterEach, expect, test, vi } from 'vitest'
import type { Overview } from '~/api/types'
import type { Beginning } from './beginning'
import { HeatMap } from './HeatMap'
import { scaleOf } from './scale'

const row = (node: string) => ({
  address: `0/g/${node}:0`,
  node,
  slot: 0,
  io: 'output' as const,
  graph: 'g',
  graphs: ['g'],
  type: 'Add',
  position: 0,
  tensors: 1,
})
const data: Overview = {
  statistic: 'abs_mean',
  total: 2,
  offset: 0,
  tensors: 2,
  steps: [
    { first: 1, last: 1 },
    { first: 2, last: 2 },
  ],
  rows: [row('Default/a'), row('Default/b')],
  values: [
    [1, 2],
    [3, 4],
  ],
  marks: [
    [0, 0],
    [0, 1],
  ],
  located: [],
  first: null,
  unread: 0,
  unread_bytes: 0,
} as unknown as Overview
const beginning: Beginning = {
  cell: { row: 1, column: 1 },
  name: 'Default/deep/in/b',
  step: 2,
  address: '0/g/Default/b:0@2',
  isCertain: true,
}

function show(flag: Beginning | null) {
  const onBeginning = vi.fn()
  const nothing = () => undefined
  render(
    <MantineProvider>
      <QueryClientProvider client={new QueryClient()}>
        <HeatMap
          data={data}
          scale={scaleOf(data)}
          width={600}
          height={300}
          beginning={flag}
          cursor={null}
          onCursor={nothing}
          onGo={nothing}
          onPart={nothing}
          onBack={nothing}
          onBeginning={onBeginning}
        />
      </QueryClientProvider>
    </MantineProvider>,
  )
  return onBeginning
}

afterEach(cleanup)

test('a click on the flag of the beginning goes there', () => {
  const onBeginning = show(beginning)
  const flag = screen.getByTestId('overview-beginning')
  expect(flag.textContent).toBe('Began at step 2deep/in/b')
  fireEvent.click(flag)
  expect(onBeginning).toHaveBeenCalledOnce()
})

test('the flag says only where it was first seen if the beginning is not certain', () => {
  show({ ...beginning, isCertain: false })
  expect(screen.getByTestId('overview-beginning').textContent).toContain('First seen at step 2')
})

test('there is no flag where the beginning is not in the part that is shown, but B goes there', () => {
  const onBeginning = show({ ...beginning, cell: null })
  expect(screen.queryByTestId('overview-beginning')).toBeNull()
  fireEvent.keyDown(screen.getByTestId('overview-map'), { key: 'b' })
  expect(onBeginning).toHaveBeenCalledOnce()
})
