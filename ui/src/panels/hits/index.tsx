import { Button, Skeleton } from '@mantine/core'
import { IconAlertTriangle, IconFilterOff, IconPlus, IconRefresh } from '~/parts/icons'
import { useVirtualizer } from '@tanstack/react-virtual'
import { useEffect, useRef, useState } from 'react'
import { useTranslation } from 'react-i18next'
import { useSession } from '~/api/queries'
import type { Session } from '~/api/types'
import { ActionButton } from '~/parts/ActionButton'
import { Failure, Notice } from '~/parts/Notice'
import { useView } from '~/state/store'
import { HitFilters } from './HitFilters'
import { noFilter, useFirstHits, useHitsAt, usePositionOf, type HitFilter } from './hitPages'
import classes from './hits.module.css'
import { HitRow } from './HitRow'
import { hitsTexts } from './texts'

const ROW_HEIGHT = 96

/** The nodes with hits at the step shown, with measured values and limits. */
export function Hits() {
  const { t } = useTranslation(hitsTexts)
  const { data: session } = useSession()
  const [filter, setFilter] = useState(noFilter)
  const { data, isPending, error } = useFirstHits(filter)
  const isFiltered = filter !== noFilter
  const total = data?.total ?? 0
  return (
    <div className="fill" data-testid="panel-hits">
      {(total > 1 || isFiltered) && <HitFilters filter={filter} change={setFilter} />}
      {session?.outdated && total > 0 && <Outdated />}
      {session?.ongoing && <Ongoing {...session.ongoing} />}
      {data && total > 0 && (
        <div className={classes['total']} data-testid="hits-total">
          {t('total', { count: data.tensors, nodes: t('nodes', { count: total }), step: data.step })}
        </div>
      )}
      {isPending ? (
        <div className={classes['pending']} aria-busy>
          {[0, 1, 2].map((index) => (
            <Skeleton key={index} height={ROW_HEIGHT - 12} mb={12} />
          ))}
        </div>
      ) : error ? (
        <Failure error={error} />
      ) : total === 0 ? (
        <Empty isFiltered={isFiltered} clear={() => setFilter(noFilter)} />
      ) : (
        <List filter={filter} total={total} label={t('list', { step: data.step })} />
      )}
    </div>
  )
}

/** A virtualised list that renders and loads only the visible nodes. */
function List({ filter, total, label }: { filter: HitFilter; total: number; label: string }) {
  const scroller = useRef<HTMLDivElement>(null)
  const node = useView((view) => view.node)
  const position = usePositionOf(node, filter)
  const virtual = useVirtualizer({
    count: total,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_HEIGHT,
    overscan: 4,
  })
  const items = virtual.getVirtualItems()
  const rows = useHitsAt(
    filter,
    items.map((item) => item.index),
  )
  useEffect(() => {
    if (position !== null && position < total) virtual.scrollToIndex(position, { align: 'auto' })
    // Only when another node is selected, not when rows are measured.
    // oxlint-disable-next-line react/exhaustive-deps
  }, [position])
  return (
    <div ref={scroller} className="scroll">
      <ol className={classes['list']} style={{ height: virtual.getTotalSize() }} aria-label={label}>
        {items.map((item) => {
          const row = rows.get(item.index)
          return (
            <li
              key={item.key}
              ref={virtual.measureElement}
              data-index={item.index}
              style={{ transform: `translateY(${item.start}px)` }}
            >
              {row ? <HitRow hits={row} /> : <Skeleton height={ROW_HEIGHT - 8} m={4} />}
            </li>
          )
        })}
      </ol>
    </div>
  )
}

/** The note on hits that continue and no longer stop the run. */
function Ongoing({ step, since, tensors }: NonNullable<Session['ongoing']>) {
  const { t } = useTranslation(hitsTexts)
  return (
    <div className={classes['ongoing']} role="note" data-testid="hits-ongoing">
      {t('ongoing', { count: tensors, since, step })}
    </div>
  )
}

function Outdated() {
  const { t } = useTranslation(hitsTexts)
  return (
    <div className={classes['outdated']} role="status" data-testid="hits-outdated">
      <IconAlertTriangle size={16} aria-hidden />
      <span>{t('outdated')}</span>
      <ActionButton id="run.recheck" icon={<IconRefresh size={14} />} withLabel />
    </div>
  )
}

/** Why there are no hits. */
function Empty({ isFiltered, clear }: { isFiltered: boolean; clear: () => void }) {
  const { t } = useTranslation(hitsTexts)
  const { data: session } = useSession()
  if (!session) return null
  if (isFiltered) {
    return (
      <Notice title={t('noneFiltered')} testId="hits-empty">
        <Button variant="default" leftSection={<IconFilterOff size={14} />} onClick={clear}>
          {t('clearFilters')}
        </Button>
      </Notice>
    )
  }
  if (session.watchpoints === 0) {
    return (
      <Notice title={t('nothingWatchedTitle')} testId="hits-empty">
        <p className={classes['why']}>{t('nothingWatched')}</p>
        <ActionButton id="watchpoints.new" icon={<IconPlus size={14} />} withLabel />
      </Notice>
    )
  }
  if (session.state === 'running' || session.state === 'sending') {
    return (
      <Notice title={t('runningTitle')} testId="hits-empty">
        {t('running')}
      </Notice>
    )
  }
  if (session.outdated) {
    return (
      <Notice title={t('uncheckedTitle', { step: session.step })} testId="hits-outdated">
        <p className={classes['why']}>{t('unchecked', { count: session.watchpoints })}</p>
        <ActionButton id="run.recheck" icon={<IconRefresh size={14} />} withLabel />
        <ActionButton id="origin.find" icon={<IconAlertTriangle size={14} />} withLabel />
      </Notice>
    )
  }
  return (
    <Notice title={t('noneTitle', { step: session.step })} testId="hits-empty">
      <p className={classes['why']}>
        {session.node
          ? t('noneSoFar', { count: session.watchpoints, node: session.node.split('/').at(-1) })
          : t('none', { count: session.watchpoints })}
      </p>
      <ActionButton id="origin.find" icon={<IconAlertTriangle size={14} />} withLabel />
    </Notice>
  )
}
