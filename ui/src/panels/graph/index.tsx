import { ReactFlowProvider } from '@xyflow/react'
import { Loader } from '@mantine/core'
import { useEffect } from 'react'
import { useTranslation } from 'react-i18next'
import { useSession } from '~/api/queries'
import { Failure, Notice } from '~/parts/Notice'
import { useView } from '~/state/store'
import { Drawing } from './Drawing'
import { warmUp } from './layout'
import { graphTexts } from './texts'
import { useGraphs } from './useLevel'

/** The graph of a rank as a picture: its scopes are closed at first, and only what is open is read and laid out. */
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
  const { data: session } = useSession()
  const graphs = useGraphs()
  const run = useView((view) => view.run)
  const rank = useView((view) => view.rank)
  const chosen = useView((view) => view.graph)
  const node = useView((view) => view.node)
  const set = useView((view) => view.set)
  useEffect(warmUp, [])
  // A node that is selected in another graph brings that graph to the front.
  useEffect(() => {
    if (node && useView.getState().graph !== '') set({ graph: node.graph })
  }, [node, set])

  if (graphs.error) return <Failure error={graphs.error} retry={() => void graphs.refetch()} />
  if (!graphs.data) return <Notice icon={<Loader size="sm" />} title={t('loading')} />
  const names = graphs.data.map((one) => one.name)
  const ofNode = node?.rank === rank ? node.graph : undefined
  const graph = [chosen, ofNode, session?.graph].find((one) => one && names.includes(one)) ?? names[0]
  if (graph === undefined) return <Notice title={t('empty')}>{t('emptyWhy')}</Notice>
  return <Drawing key={`${run}/${rank}/${graph}`} run={run} rank={rank} graph={graph} graphs={graphs.data} />
}
