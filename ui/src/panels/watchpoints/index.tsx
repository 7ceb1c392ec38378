import { Skeleton } from '@mantine/core'
import { IconPlus, IconRefresh, IconStars, IconTrash } from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import { useWatchpoints } from '~/api/queries'
import { ActionButton } from '~/parts/ActionButton'
import { Failure } from '~/parts/Notice'
import { useView } from '~/state/store'
import { WatchpointDialog } from './Dialog'
import { watchpointsTexts } from './texts'
import { useWatchpointActions } from './useWatchpointActions'
import { WatchpointRow } from './WatchpointRow'
import classes from './watchpoints.module.css'

/** The list of watchpoints; a click on one shows its nodes in the tree and the graph. */
export function Watchpoints() {
  const { t } = useTranslation(watchpointsTexts)
  const { data: watchpoints, error, isPending } = useWatchpoints()
  const chosen = useView((view) => view.watchpoint)
  const dialog = useView((view) => view.dialog)
  useWatchpointActions()
  return (
    <section className="fill" data-testid="panel-watchpoints" aria-label={t('title')}>
      <div className="heading">
        <h2 className={classes['title']}>{t('title')}</h2>
        {watchpoints !== undefined && <span className={classes['quiet']}>{watchpoints.length}</span>}
        <span className={classes['tools']}>
          <ActionButton id="watchpoints.new" icon={<IconPlus size={16} />} />
          <ActionButton id="run.recheck" icon={<IconRefresh size={16} />} />
          <ActionButton id="watchpoints.clear" icon={<IconTrash size={16} />} />
        </span>
      </div>
      <div className="scroll">
        {error ? (
          <Failure error={error} />
        ) : isPending ? (
          <Skeleton height={40} m={8} />
        ) : watchpoints.length === 0 ? (
          <div className={classes['none']}>
            <strong>{t('none')}</strong>
            <span>{t('noneHint')}</span>
            <ActionButton id="watchpoints.recommended" icon={<IconStars size={14} />} withLabel />
            <ActionButton id="watchpoints.new" icon={<IconPlus size={14} />} withLabel />
          </div>
        ) : (
          <ul className={classes['list']} aria-label={t('title')}>
            {watchpoints.map((watchpoint) => (
              <WatchpointRow
                key={watchpoint.id}
                watchpoint={watchpoint}
                isChosen={watchpoint.id === chosen}
              />
            ))}
          </ul>
        )}
      </div>
      {dialog === 'watchpoint' && <WatchpointDialog />}
    </section>
  )
}
