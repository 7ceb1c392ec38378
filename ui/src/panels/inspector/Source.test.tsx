import { MantineProvider } from '@mantine/core'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen } from '@testing-library/react'
import { afterEach, expect, test } from 'vitest'
import { keys } from '~/api/keys'
import type { NodeRecord, Origin } from '~/api/types'
import { useView } from '~/state/store'
import { Source } from './Source'

const LINE = { file: '/home/me/train.py', line: 41, end_line: 44, code: 'loss = …', is_user_code: true }

function show(node: Partial<NodeRecord>, origin: Partial<Origin>) {
  useView.setState({ run: 'a' })
  const client = new QueryClient({ defaultOptions: { queries: { staleTime: Infinity, retry: false } } })
  client.setQueryData(keys.record('a'), {
    hits: 0,
    step: 5,
    present_step: 5,
    capabilities: { has_origin: true },
  })
  client.setQueryData(keys.hits('a', 'list', { limit: 20 }), { nodes: [], tensors: 0 })
  client.setQueryData(keys.hits('a', 'origins', 'all'), [
    {
      anomaly: 'nan',
      address: '0/g/Default/x:0@5',
      node: 'Default/x',
      line: LINE,
      arrived: false,
      ...origin,
    },
  ])
  render(
    <MantineProvider>
      <QueryClientProvider client={client}>
        <Source
          node={{ name: 'Default/x', rank: 0, graph: 'g', stack: [], ...node } as unknown as NodeRecord}
        />
      </QueryClientProvider>
    </MantineProvider>,
  )
  return screen.getByTestId('node-source').textContent
}

afterEach(() => {
  cleanup()
  useView.setState({ run: '' })
})

test('the inspector shows the line that the banner names for a node without a line of its own', () => {
  const text = show({}, {})
  expect(text).toContain('train.py:41')
  expect(text).toContain('it began here')
})

test('the inspector says that the line reads the node if its anomaly came in with it', () => {
  expect(show({}, { arrived: true })).toContain('this line reads it')
})

test('the inspector shows no line of another node, or of another rank', () => {
  expect(show({ name: 'Default/y' }, {})).not.toContain('train.py')
  cleanup()
  expect(show({ rank: 1 }, {})).not.toContain('train.py')
})

test('the inspector keeps to the lines of the node if it has some', () => {
  const stack = [{ ...LINE, file: 'model.py', line: 7, end_line: null, has_substack: false }]
  const text = show({ stack }, {})
  expect(text).toContain('model.py:7')
  expect(text).not.toContain('train.py')
})
