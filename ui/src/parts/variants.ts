import { useTranslation } from 'react-i18next'
import { useGraphs } from '~/api/queries'
import type { GraphRecord } from '~/api/types'
import { partTexts } from './texts'

/** Stretches of steps that are written out. */
const MOST_SPANS = 4

/** Of the graphs that ran in the step shown the largest; before anything ran the newest. */
export function graphThatRan(graphs: readonly GraphRecord[]): GraphRecord | undefined {
  const ran = graphs.filter((one) => one.ran)
  const largest = ran.reduce<GraphRecord | undefined>((a, b) => (a && a.nodes >= b.nodes ? a : b), undefined)
  return largest ?? graphs.at(-1)
}

/** `1, 3 – 5, 8, …`; empty if no step is known. */
export function stepsText({ steps, spans }: Pick<GraphRecord, 'steps' | 'spans'>): string {
  const shown = steps
    .slice(0, MOST_SPANS)
    .map(({ first, last }) => (first === last ? `${first}` : `${first} – ${last}`))
  return [...shown, ...(spans > shown.length ? ['…'] : [])].join(', ')
}

/** Names a graph with the steps in which it ran: `kernel_graph_1 (step 2 – 120)`. */
export function useGraphName(): (graph: GraphRecord) => string {
  const { t } = useTranslation(partTexts)
  return (graph) => {
    const steps = stepsText(graph)
    return steps === '' ? graph.name : t('variant', { name: graph.name, steps })
  }
}

/** What there is to say of the graphs that have a node, where not all have it. */
export interface Variants {
  mark: string
  title: string
  /** None of them ran in the step shown. */
  isAbsent: boolean
}

/** Says in words in which variants of the program something is; null: in all. */
export function useVariants(): (graphs: readonly string[]) => Variants | null {
  const { t } = useTranslation(partTexts)
  const graphName = useGraphName()
  const { data = [] } = useGraphs()
  return (names) => {
    if (names.length === 0 || data.length < 2) return null
    const graphs = data.filter((one) => names.includes(one.name))
    const [only] = graphs
    const steps = only && graphs.length === 1 ? stepsText(only) : ''
    const isOne = only?.spans === 1 && only.steps[0]?.first === only.steps[0]?.last
    return {
      mark:
        steps === '' ? t('variants', { count: names.length }) : t(isOne ? 'inStep' : 'inSteps', { steps }),
      title: t('onlyIn', { graphs: graphs.map(graphName).join(', ') }),
      isAbsent: !graphs.some((one) => one.ran),
    }
  }
}
