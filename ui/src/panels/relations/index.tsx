import { Skeleton, Text } from '@mantine/core'
import { useElementSize } from '@mantine/hooks'
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { IconArrowLeft, IconArrowRight } from '~/parts/icons'
import { useEffect, useMemo } from 'react'
import { useTranslation } from 'react-i18next'
import { get } from '~/api/client'
import { keys, path } from '~/api/queries'
import type { RelationGraph } from '~/api/types'
import { ActionButton } from '~/parts/ActionButton'
import { Failure } from '~/parts/Notice'
import { parseAddress } from '~/parts/tensorAddress'
import { useActions } from '~/state/useActions'
import { useView } from '~/state/store'
import { columnsOf, shortName } from './columns'
import { NodeCard } from './NodeCard'
import css from './relations.module.css'
import { relationsTexts } from './texts'
import { beginTrail, useTrail, walkBack, walkForward } from './trail'

/** The producers and consumers of a tensor, one hop around; a double-click on an output goes to that tensor. */
export default function Relations({ address }: { address: string }) {
  const { t } = useTranslation(relationsTexts)
  const run = useView((view) => view.run)
  const { data, error, refetch } = useQuery({
    queryKey: keys.hits(run, 'relations', address),
    queryFn: ({ signal }) => get<RelationGraph>(path(run, '/relations'), { address }, signal),
    placeholderData: keepPreviousData,
  })
  useEffect(() => beginTrail(address), [address])
  useTrailActions()
  return (
    <div className={css['panel']} data-testid="panel-relations">
      <div className={css['walk']}>
        <ActionButton id="relations.back" icon={<IconArrowLeft size={15} />} />
        <ActionButton id="relations.forward" icon={<IconArrowRight size={15} />} />
        {data?.truncated && (
          <Text size="xs" c="var(--quiet)">
            {t('truncated', { count: data.nodes.length })}
          </Text>
        )}
      </div>
      {error && !data ? (
        <Failure error={error} retry={() => void refetch()} />
      ) : data ? (
        <Columns graph={data} address={address} />
      ) : (
        <Skeleton h="100%" />
      )}
    </div>
  )
}

function Columns({ graph, address }: { graph: RelationGraph; address: string }) {
  const { t } = useTranslation(relationsTexts)
  const { ref, width, height } = useElementSize<HTMLDivElement>()
  const drawn = useMemo(() => columnsOf(graph, { width, height }), [graph, width, height])
  const producers = graph.nodes.filter((node) => node.distance < 0).length
  const readers = graph.nodes.filter((node) => node.distance > 0).length
  const chosen = parseAddress(address)
  return (
    <>
      <div className={css['headings']} aria-hidden>
        <span>{producers ? t('madeOf', { count: producers }) : t('noInputs')}</span>
        <span>{readers ? t('usedBy', { count: readers }) : t('noReaders')}</span>
      </div>
      <div
        ref={ref}
        className={css['scroll']}
        role="group"
        tabIndex={0}
        aria-label={t('picture', { name: shortName(graph.centre) })}
      >
        {width > 0 && (
          <div className={css['sheet']} style={{ width: drawn.width, height: drawn.height }}>
            <svg width={drawn.width} height={drawn.height} aria-hidden>
              <defs>
                <marker
                  id="relation-arrow"
                  viewBox="0 0 8 8"
                  refX="7"
                  refY="4"
                  markerWidth="8"
                  markerHeight="8"
                  markerUnits="userSpaceOnUse"
                  orient="auto"
                >
                  <path className={css['arrow']} d="M0.5 1 7.5 4 0.5 7z" />
                </marker>
              </defs>
              {drawn.lines.map((line) => (
                <path
                  key={line.id}
                  className={css['line']}
                  d={line.path}
                  data-control={line.control || undefined}
                  markerEnd="url(#relation-arrow)"
                >
                  <title>{line.label}</title>
                </path>
              ))}
            </svg>
            {drawn.cards.map((card) => (
              <NodeCard
                key={card.node.name}
                card={card}
                rank={graph.rank}
                graph={graph.graph}
                chosenSlot={card.node.distance === 0 && chosen?.io === 'output' ? chosen.slot : null}
              />
            ))}
          </div>
        )}
      </div>
    </>
  )
}

function useTrailActions(): void {
  const { t } = useTranslation(relationsTexts)
  const canGoBack = useTrail((trail) => trail.past.length > 0)
  const canGoForward = useTrail((trail) => trail.future.length > 0)
  useActions(
    useMemo(
      () => [
        {
          id: 'relations.back',
          group: t('group'),
          label: t('back'),
          keys: 'alt+shift+ArrowLeft',
          disabled: canGoBack ? undefined : t('noBack'),
          run: walkBack,
        },
        {
          id: 'relations.forward',
          group: t('group'),
          label: t('forward'),
          keys: 'alt+shift+ArrowRight',
          disabled: canGoForward ? undefined : t('noForward'),
          run: walkForward,
        },
      ],
      [t, canGoBack, canGoForward],
    ),
  )
}
