import { MantineProvider } from '@mantine/core'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { act, cleanup, fireEvent, render, screen } from '@testing-library/react'
import i18next from 'i18next'
import { afterEach, expect, test } from 'vitest'
import { keys } from '~/api/keys'
import type { Diagnosis, FindingRecord } from '~/api/types'
import { useSourcesState } from '~/panels/sources/sourcesState'
import { emptyView, useView } from '~/state/store'
import Findings from '.'
import { FindingsStrip } from './Strip'

const TWICE = {
  title: 'softmax before cross_entropy',
  evidence: ['the scores are within 0 … 1'],
  advice: 'Give the loss the scores of the last layer',
  explains: ['the loss does not fall'],
  rule: 'activation-twice',
  category: 'output-and-loss',
  certainty: 'certain',
  step: 1,
  where: { operator: 'cross_entropy', line: 'train.py:13', parameter: 'a.weight … (9)' },
  fact: '',
  values: {},
  chinese: { title: '之前又用了 softmax', evidence: [], advice: '把分数直接交给损失函数', explains: [] },
} as FindingRecord
const FILE = {
  file: '/me/train.py',
  is_library: false,
  has_text: true,
  lines: [{ line: 13, code: 'loss = …' }],
}

function show(diagnosis: Partial<Diagnosis>, session: object = {}) {
  useView.setState({ ...emptyView, run: 'a', tab: 'findings' })
  const client = new QueryClient({ defaultOptions: { queries: { staleTime: Infinity, retry: false } } })
  client.setQueryData(keys.record('a'), {
    state: 'paused',
    step: 5,
    findings: diagnosis.findings?.length ?? 0,
    capabilities: { can_go_to_step: true, live: true },
    ...session,
  })
  client.setQueryData(keys.findings('a', 'diagnosis'), {
    steps: 40,
    findings: [],
    undecided: [],
    ...diagnosis,
  })
  client.setQueryData(keys.graphs('a', 'sources', ''), { files: [FILE], total: 1 })
  client.setQueryData(keys.findings('a', 'facts', 'losses', 0), { subject: 'losses', rank: 0, columns: {} })
  render(
    <MantineProvider>
      <QueryClientProvider client={client}>
        <FindingsStrip />
        <Findings />
      </QueryClientProvider>
    </MantineProvider>,
  )
}

afterEach(async () => {
  cleanup()
  useView.setState(emptyView)
  await i18next.changeLanguage('en')
})

test('a finding says what is wrong, where, since when, and what to do', () => {
  show({ findings: [TWICE] })
  const card = screen.getByTestId('finding')
  expect(card.textContent).toContain('softmax before cross_entropy')
  expect(card.textContent).toContain('certain')
  expect(card.textContent).toContain('since step 1')
  expect(card.textContent).toContain('… 8 more')
  expect(screen.getByTestId('finding-evidence').textContent).toBe('the scores are within 0 … 1')
  expect(screen.getByTestId('finding-advice').textContent).toBe('Give the loss the scores of the last layer')
  expect(screen.getByTestId('finding-follows').hasAttribute('open')).toBe(false)
  expect(screen.getByTestId('finding-step').textContent).toBe('Go to step 1')
  expect(card.textContent).toContain('activation-twice')
})

test('a click on the line shows it in the text of its file', () => {
  show({ findings: [TWICE] })
  fireEvent.click(screen.getByTestId('finding-line'))
  expect(useView.getState().left).toBe('sources')
  expect(useSourcesState.getState()).toMatchObject({ run: 'a', file: '/me/train.py', line: 13, isHeld: true })
})

test('a line of a file that is not known is no link, and a run that cannot go to a step has no button', () => {
  const elsewhere = { ...TWICE, where: { line: 'model.py:3' } }
  show({ findings: [elsewhere] }, { capabilities: { can_go_to_step: false, live: true } })
  expect(screen.getByTestId('finding-location').textContent).toContain('model.py:3')
  expect(screen.queryByTestId('finding-line')).toBeNull()
  expect(screen.queryByTestId('finding-step')).toBeNull()
})

test('a page in Chinese has the Chinese words', async () => {
  await i18next.changeLanguage('zh')
  show({ findings: [TWICE] })
  const card = screen.getByTestId('finding')
  expect(card.textContent).toContain('之前又用了 softmax')
  expect(card.textContent).toContain('确定')
  expect(card.textContent).not.toContain('softmax before')
})

test('no finding is no proof, and rules that could not judge are listed with the reason', () => {
  show({ undecided: [{ rule: 'batch-repeated', why: 'no calls were seen' }] })
  expect(screen.getByTestId('findings-none').textContent).toContain('No rule found a fault up to step 40')
  expect(screen.getByTestId('findings-foot').textContent).toContain('Facts up to step 40')
  expect(screen.getByTestId('findings-undecided').textContent).toContain('batch-repeated: no calls were seen')
})

test('a run without facts says why, and how to look at a training', () => {
  show({ steps: 0 }, { capabilities: { live: false } })
  const text = screen.getByTestId('findings-no-facts').textContent
  expect(text).toContain('This run has none')
  expect(text).toContain('tensight diagnose train.py')
})

test('the first certain finding stands above the other tabs, and leads to the findings', () => {
  const likely = {
    ...TWICE,
    certainty: 'likely',
    title: 'the loss rises',
    rule: 'loss-rises',
  } as FindingRecord
  show({ findings: [likely, TWICE] })
  expect(screen.queryByTestId('findings-strip')).toBeNull()
  act(() => useView.getState().set({ tab: 'graph' }))
  const strip = screen.getByTestId('findings-strip')
  expect(strip.textContent).toContain('softmax before cross_entropy')
  expect(strip.textContent).toContain('train.py:13')
  expect(strip.textContent).toContain('and 1 more')
  fireEvent.click(screen.getByTestId('action-findings-show'))
  expect(useView.getState().tab).toBe('findings')
})

test('a finding that is not certain does not stand above the other tabs', () => {
  show({ findings: [{ ...TWICE, certainty: 'possible' }] })
  act(() => useView.getState().set({ tab: 'graph' }))
  expect(screen.queryByTestId('findings-strip')).toBeNull()
})
