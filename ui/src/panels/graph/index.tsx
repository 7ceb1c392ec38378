import { ReactFlowProvider } from '@xyflow/react'
import { Loader } from '@mantine/core'
import { useEffect } from 'react'
import { useTranslation } from 'react-i18next'
import { useGraphs, useNode } from '~/api/queries'
import { Failure, Notice } from '~/parts/Notice'
import { useView } from '~/state/store'
import { graphThatRan } from '~/parts/variants'
import { Drawing } from './Drawing'
import { warmUp } from './layout'
import { graphTexts } from './texts'

/** The graph of a rank. Its scopes are closed at first, and only open scopes are loaded and laid out. */
export default function Graph() {
  return (
    <div className="fill" data-testid="panel-graph">
      <ReactFlowProvider>
        <Content />
      </ReactFlowProvider>
    </div>
  )
}

function Content() {
  const { t } = useTranslation(graphTexts)
  const graphs = useGraphs()
  const run = useView((view) => view.run)
  const rank = useView((view) => view.rank)
  const chosen = useView((view) => view.graph)
  const { data: node } = useNode()
  const set = useView((view) => view.set)
  useEffect(warmUp, [])
  // A node that the chosen variant lacks is shown in a variant that has it.
  useEffect(() => {
    if (node && chosen !== '' && !node.graphs.includes(chosen)) set({ graph: '' })
  }, [node, chosen, set])

  if (graphs.error) return <Failure error={graphs.error} retry={() => void graphs.refetch()} />
  if (!graphs.data) return <Notice icon={<Loader size="sm" />} title={t('loading')} />
  const names = graphs.data.map((record) => record.name)
  const ofNode = node?.rank === rank ? node.graph : ''
  const graph = [chosen, ofNode].find((name) => names.includes(name)) ?? graphThatRan(graphs.data)?.name
  if (graph === undefined) return <Notice title={t('empty')}>{t('emptyWhy')}</Notice>
  return <Drawing key={`${run}/${rank}`} run={run} rank={rank} graph={graph} graphs={graphs.data} />
}
