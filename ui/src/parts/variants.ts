import { useTranslation } from 'react-i18next'
import { useGraphs } from '~/api/queries'
import type { GraphRecord } from '~/api/types'
import { partTexts } from './texts'

/** Maximum number of spans of steps in a text. */
const MOST_SPANS = 4

/** Return the largest of the graphs that ran in the step shown; if none ran, the newest. */
export function graphThatRan(graphs: readonly GraphRecord[]): GraphRecord | undefined {
  const ran = graphs.filter((graph) => graph.ran)
  const largest = ran.reduce<GraphRecord | undefined>((a, b) => (a && a.nodes >= b.nodes ? a : b), undefined)
  return largest ?? graphs.at(-1)
}

/** Format the steps of a graph: `1, 3 – 5, 8, …`; empty if no step is known. */
export function stepsText({ steps, spans }: Pick<GraphRecord, 'steps' | 'spans'>): string {
  const shown = steps
    .slice(0, MOST_SPANS)
    .map(({ first, last }) => (first === last ? `${first}` : `${first} – ${last}`))
  return [...shown, ...(spans > shown.length ? ['…'] : [])].join(', ')
}

/** Return a function that names a graph with the steps in which it ran: `kernel_graph_1 (step 2 – 120)`. */
export function useGraphName(): (graph: GraphRecord) => string {
  const { t } = useTranslation(partTexts)
  return (graph) => {
    const steps = stepsText(graph)
    return steps === '' ? graph.name : t('variant', { name: graph.name, steps })
  }
}

/** Texts about the graphs that have a node, if not all have it. */
export interface Variants {
  mark: string
  title: string
  /** None of them ran in the step shown. */
  isAbsent: boolean
}

/** Return a function that describes which variants of the program have a node; null: all of them. */
export function useVariants(): (graphs: readonly string[]) => Variants | null {
  const { t } = useTranslation(partTexts)
  const graphName = useGraphName()
  const { data = [] } = useGraphs()
  return (names) => {
    if (names.length === 0 || data.length < 2) return null
    const graphs = data.filter((graph) => names.includes(graph.name))
    const [only] = graphs
    const steps = only && graphs.length === 1 ? stepsText(only) : ''
    const isOne = only?.spans === 1 && only.steps[0]?.first === only.steps[0]?.last
    return {
      mark:
        steps === '' ? t('variants', { count: names.length }) : t(isOne ? 'inStep' : 'inSteps', { steps }),
      title: t('onlyIn', { graphs: graphs.map(graphName).join(', ') }),
      isAbsent: !graphs.some((graph) => graph.ran),
    }
  }
}
