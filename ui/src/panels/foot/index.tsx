import { useTranslation } from 'react-i18next'
import classes from './foot.module.css'
import { Messages } from './Messages'
import { Processes } from './Processes'
import { footTexts } from './texts'

/** The bar at the foot of the page, with processes and messages. It covers nothing and never moves. */
export function Foot() {
  const { t } = useTranslation(footTexts)
  return (
    <footer className={classes['foot']} data-testid="panel-foot" aria-label={t('foot')}>
      <Processes />
      <Messages />
    </footer>
  )
}
